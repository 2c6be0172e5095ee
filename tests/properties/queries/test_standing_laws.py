"""For any plans and any feed, the results are those of a batch join of the log."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mediator.standing.model import Workload
from mediator.standing.planning import MODES, PlanOptions, make_plans
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from tests.unit.standing.batch_join import Found, Logged, batch_join, found
from tests.unit.standing.papers_queries import document, query, workload

_QUERIES: dict[str, Any] = {
    "chain": query({"R": "a", "S": "ab", "T": "b"}, 3),
    "next": query({"S": "b", "T": "bc", "U": "c"}, 3),
    "wider": query({"S": "b", "T": "bc", "U": "c"}, 5),
    "pair": query({"S": "b", "T": "b"}, 3),
    "star": query({"S": "ab", "R": "a", "T": "b", "U": "b"}, 4),
    "both": query({"S": "ab", "T": "ab"}, 2),
    "clique": query({"R": "a", "S": "a", "T": "a"}, 4),
}
_STREAMS = document({"R": "a", "S": "ab", "T": "abc", "U": "bc"})["streams"]
_RETENTION_S = 5.0
_LATENESS_S = 2.0

_values = st.sampled_from([0, 0, 0, 1, 2, None])
_tuples = st.builds(
    lambda stream, delay, *values: (stream, delay, dict(zip("abc", values, strict=True))),
    st.sampled_from("RSTU"),
    # Out of order, late, and rarely far ahead.
    st.sampled_from([0.0, 0.0, 0.5, 1.0, -1.0, -1.5, -4.0, 2.0]),
    _values,
    _values,
    _values,
)
_plans = st.tuples(
    st.sets(st.sampled_from(sorted(_QUERIES)), max_size=3),
    st.sampled_from([mode for mode in MODES if mode != "individual"]),
    st.builds(PlanOptions, materialise=st.booleans(), replicas=st.booleans()),
    st.dictionaries(st.sampled_from("RSTU"), st.sampled_from([1, 100]), max_size=4),
)
_stretches = st.lists(
    st.tuples(_plans, st.lists(st.lists(_tuples, max_size=8), max_size=3)), min_size=1, max_size=4
)


def _workload(names: set[str], rates: dict[str, int], parallelism: int) -> Workload:
    streams = {name: {**stream, "rate": rates.get(name, 10)} for name, stream in _STREAMS.items()}
    queries = {name: _QUERIES[name] for name in sorted(names)}
    return workload({"streams": streams, "queries": queries, "parallelism": parallelism})


@settings(max_examples=60)
@given(stretches=_stretches, parallelism=st.sampled_from([1, 3]))
def test_results_are_those_of_a_batch_join(stretches: Any, parallelism: int) -> None:
    runtime = Runtime(_STREAMS, parallelism, _RETENTION_S, _LATENESS_S)
    log: list[Logged] = []
    results: Found = Counter()
    expected: Found = Counter()
    now_s, position, late = 0.0, 0, 0
    ranges: list[tuple[set[str], int, int]] = []
    for (names, mode, options, rates), batches in stretches:
        if names:
            (plan,) = make_plans(_workload(names, rates, parallelism), mode, options)
            runtime.activate(plan)
        since = position
        active = names or (ranges[-1][0] if ranges else set())
        for batch in batches:
            watermark_s = runtime.watermark_s
            tuples = []
            for stream, delay, values in batch:
                now_s += max(delay, 0.25)
                tuple_ = StreamTuple(stream, now_s + min(delay, 0.0) * 2, values)
                tuples.append(tuple_)
                if tuple_.time_s < watermark_s:
                    late += 1
                else:
                    log.append((position, tuple_))
                position += 1
            results += found(runtime.feed(tuples), log)
        ranges.append((active, since, position))
    for active, since, until in ranges:
        for name in active:
            join = _workload({name}, {}, 1).queries[name]
            expected += batch_join(name, join, log, since, until)
    assert results == expected
    assert runtime.late == late
