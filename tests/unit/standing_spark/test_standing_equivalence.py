"""Whatever the plans and the feed are: the results, and what is sent, are the reference's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mediator.standing.planning import Plan, make_plans
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from tests.properties.queries.test_standing_laws import (
    _LATENESS_S,
    _RETENTION_S,
    _STREAMS,
    _stretches,
    _workload,
)
from tests.unit.standing.batch_join import Logged, found
from tests.unit.standing_spark.in_process import InProcess, results_in


@settings(max_examples=60, phases=[Phase.generate])
@given(stretches=_stretches, parallelism=st.sampled_from([1, 3]), seed=st.integers(0, 9))
def test_results_and_what_is_sent_are_those_of_the_reference(
    stretches: Any, parallelism: int, seed: int
) -> None:
    reference = Runtime(_STREAMS, parallelism, _RETENTION_S, _LATENESS_S)
    now_s, position, batch_id = 0.0, 0, 0
    log: list[Logged] = []
    running: InProcess | None = None
    pending: Plan | None = None
    with TemporaryDirectory() as folder:
        path = Path(folder)
        for (names, mode, options, rates), batches in stretches:
            if names:
                (plan,) = make_plans(_workload(names, rates, parallelism), mode, options)
                pending = plan
            if pending is None and running is None:
                continue
            for batch in batches:
                if pending is not None:
                    reference.activate(pending)
                    if running is None:
                        running = InProcess(path, plan, _RETENTION_S, _LATENESS_S, Random(seed))
                    running.joins.activate(pending)
                    pending = None
                assert running is not None
                fed = []
                for stream, delay, values in batch:
                    now_s += max(delay, 0.25)
                    each = StreamTuple(stream, now_s + min(delay, 0.0) * 2, values)
                    fed.append((position, each))
                    position += 1
                log += fed
                sent_before = Counter(reference.sent)
                expected = found(reference.feed([each for _, each in fed]), log)
                before = running.joins.directory.latest()
                commit = running.feed(batch_id, fed)
                results = Counter(
                    (
                        row["query"],
                        tuple(
                            zip(sorted(orjson.loads(row["tuples"])), row["numbers"], strict=True)
                        ),
                    )
                    for row in results_in(path, batch_id)
                )
                assert results == expected
                orders = [hop.order for hop in running.joins.hops.hops]
                base = before.sent if before.plan == commit.plan else (0,) * len(orders)
                sent = {o: a - b for o, a, b in zip(orders, commit.sent, base, strict=True)}
                assert Counter(sent) == reference.sent - sent_before
                assert commit.late == reference.late
                assert commit.rows == sum(reference.kept().values())
                batch_id += 1
