"""Random feeds and plans: skewed, out of order and late, with scalars of all JSON types."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from mediator.standing.model import Workload
from mediator.standing.planning import Mode, Plan, PlanOptions, make_plans
from mediator.standing.state import StreamTuple
from tests.unit.standing.papers_queries import document, query, workload
from tests.unit.standing_spark.in_process import PositionedTuple

__all__ = ["LATENESS_S", "RETENTION_S", "STREAMS", "random_batch", "random_plan", "workload_of"]

RETENTION_S: Final = 5.0
LATENESS_S: Final = 2.0
QUERIES: Final[dict[str, Any]] = {
    "chain": query({"R": "a", "S": "ab", "T": "b"}, 3),
    "next": query({"S": "b", "T": "bc", "U": "c"}, 3),
    "wider": query({"S": "b", "T": "bc", "U": "c"}, 5),
    "pair": query({"S": "b", "T": "b"}, 3),
    "star": query({"S": "ab", "R": "a", "T": "b", "U": "b"}, 4),
    "both": query({"S": "ab", "T": "ab"}, 2),
    "clique": query({"R": "a", "S": "a", "T": "a"}, 4),
    "long": query({"R": "a", "S": "ab", "T": "bc", "U": "c"}, 3),
}
STREAMS: Final = document({"R": "a", "S": "ab", "T": "abc", "U": "bc"})["streams"]

_VALUES: Final = (0, 0, 0, 0.0, 1, 1.0, True, False, "1", "", None, -1.5, 2**53 + 1, 2.0**53)
_DELAYS: Final = (0.25, 0.25, 0.5, 1.0, -0.5, -1.5, -4.0, 0.0)


def workload_of(names: list[str], draw: Random, parallelism: int) -> Workload:
    streams = {
        name: {**stream, "rate": draw.choice([1, 10, 100])} for name, stream in STREAMS.items()
    }
    queries = {name: QUERIES[name] for name in names}
    return workload({"streams": streams, "queries": queries, "parallelism": parallelism})


def random_plan(draw: Random, parallelism: int) -> Plan:
    names = draw.sample(sorted(QUERIES), draw.randrange(1, 4))
    options = PlanOptions(draw.random() < 0.6, draw.random() < 0.4)
    mode: Mode = "greedy" if draw.random() < 0.3 else "shared"
    (plan,) = make_plans(workload_of(names, draw, parallelism), mode, options)
    return plan


def random_batch(draw: Random, first: int, now_s: float) -> Iterator[PositionedTuple]:
    """Draw tuples with positions from `first` on; some tuples of other streams share a position."""
    streams = draw.choice(["RSTU", "SSST", "RSTU", "TUU"])
    for number in range(first, first + draw.randrange(10)):
        now_s += 0.2
        for stream in dict.fromkeys(sorted(draw.choices(streams, k=draw.choice([1, 1, 2])))):
            time_s = now_s + draw.choice(_DELAYS)
            values = {name: draw.choice(_VALUES[: draw.choice([3, 14])]) for name in "abc"}
            if draw.random() < 0.1:
                del values["b"]
            attributes = {
                name: values[name] for name in STREAMS[stream]["attributes"] if name in values
            }
            yield number, StreamTuple(stream, time_s, attributes)
