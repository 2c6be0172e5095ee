"""Estimated lifetimes: cost against the best static one, simulated on several workloads.

Each estimator gets the same accesses. Costs are those of the sheet, of one access: 0.2 for each
invalidation, for which nobody waits, and 1 for each stale read, for each read that the origin
answers, and for the filter's false positive rate. The static life is swept, and CATE's slope and
longest life are found by hill climbing, both on the very accesses that are then counted; the
learner sees them once. What it costs to know the next write is reported beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.measured import Failed, Measured, Options, Result
from sketch.simulate.climb import Climb
from sketch.simulate.comparison import Comparison, Question, compare
from sketch.simulate.run import Prepared
from sketch.simulate.workload import WORKLOADS, Mix, Workload
from sketch.simulate.world import World
from sketch.ttl.weights import Weights

__all__ = ["run"]

_WEIGHTS: Final = Weights(invalidation=0.2, stale=1.0, miss=1.0, false_positives=1.0)
_BELOW: Final = 1.0
_NOT_MUCH_ABOVE: Final = 1.05
_WORKLOADS: Final[dict[str, tuple[Mix, float]]] = {
    "A, half writes": (WORKLOADS["a"], _BELOW),
    "F, read-modify-write": (WORKLOADS["f"], _BELOW),
    "one write in five, rates that change": (
        Mix("between A and B", read=0.8, update=0.2, seasons=4),
        _NOT_MUCH_ABOVE,
    ),
    "B, 5 % writes": (WORKLOADS["b"], _NOT_MUCH_ABOVE),
    "D, read latest": (WORKLOADS["d"], _NOT_MUCH_ABOVE),
}
_QUICK: Final = ("A, half writes", "one write in five, rates that change", "B, 5 % writes")
_OPERATIONS: Final = 20_000
_QUICK_OPERATIONS: Final = 10_000
_FULL_OPERATIONS: Final = 100_000
"""What the learner pays while it knows nothing weighs less, the longer it is in use."""


async def run(options: Options) -> Measured:
    """Compare estimators on each workload."""
    results: list[Result] = []
    for name in _QUICK if options.quick else _WORKLOADS:
        mix, bar = _WORKLOADS[name]
        results += _results(name, bar, _compared(name, mix, options), options)
    return Measured(results)


def _compared(name: str, mix: Mix, options: Options) -> Comparison:
    operations = _operations(options)
    world = World(Workload(mix, operations), seed=options.seed)
    climb = Climb(starts=8, climbs=1) if options.quick else Climb(starts=16, climbs=2)
    options.say(f"{name}: {operations:,} operations")
    return compare(Prepared.of(world), Question(_WEIGHTS, climb=climb))


def _operations(options: Options) -> int:
    if options.full:
        return _FULL_OPERATIONS
    return _QUICK_OPERATIONS if options.quick else _OPERATIONS


def _results(name: str, bar: float, found: Comparison, options: Options) -> Iterator[Result]:
    costs: dict[str, float] = {entry.name: entry.cost for entry in found.entries}
    settings = {entry.name: entry.settings for entry in found.entries}
    options.say(f"{name}: {costs}, static {settings['static']}, CATE {settings['cate']}")
    if any(entry.run.tally.beyond_bound for entry in found.entries):
        raise Failed("a read was older than the bound")
    for estimator, title in (("cate", "best CATE"), ("learner", "learner")):
        yield Result(
            f"workload {name}: {title} against the best static life",
            "per access",
            costs[estimator],
            costs["static"],
            bar,
            small_is_good=True,
        )
    yield Result(
        f"workload {name}: learner against the best CATE",
        "per access",
        costs["learner"],
        costs["cate"],
        1.0,
        small_is_good=True,
    )
    yield Result(f"workload {name}: oracle", "per access", costs["oracle"], costs["static"])
