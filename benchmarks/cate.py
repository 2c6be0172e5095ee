"""Estimated lifetimes: cost against the best static one, simulated on several workloads.

Each estimator gets the same accesses. Costs are those of the paper, of one access: 0.2 for each
invalidation, for which nobody waits, and 1 for each stale read, for each read that the origin
answers, and for the filter's false positive rate. The static TTL is swept, and CATE's slope and
longest TTL are found by hill climbing, both on the very accesses that are then counted; the
learner sees them once. The cost with knowledge of the next write is reported as well.

The accesses counted are to a system in use: as many come before, for all estimators. The cost of
tuning CATE is not counted, nor the learner's cost of learning. Separate results have these costs:
the same accesses, counted from the first one on, of which no estimator knows anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Final, NamedTuple

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result
from sketch.instruments.simulate.comparison import Question, SimulationReport, compare
from sketch.instruments.simulate.engine import Prepared
from sketch.instruments.simulate.workload import WORKLOADS, Mix, YcsbWorkload
from sketch.instruments.simulate.world import World
from sketch.ttl.port import Weights

__all__ = ["run"]

_WEIGHTS: Final = Weights(invalidation=0.2, stale=1.0, miss=1.0, false_positives=1.0)
_BAR_BELOW: Final = 1.0
_BAR_CLOSE: Final = 1.05
_WORKLOADS: Final[dict[str, tuple[Mix, float]]] = {
    "A, half writes": (WORKLOADS["a"], _BAR_BELOW),
    "F, read-modify-write": (WORKLOADS["f"], _BAR_BELOW),
    "one write in five, rates that change": (
        Mix("between A and B", read=0.8, update=0.2, seasons=4),
        _BAR_CLOSE,
    ),
    "B, 5 % writes": (WORKLOADS["b"], _BAR_CLOSE),
    "D, read latest": (WORKLOADS["d"], _BAR_CLOSE),
}
_QUICK: Final = ("A, half writes", "one write in five, rates that change", "B, 5 % writes")
_OPERATIONS: Final = 20_000
_QUICK_OPERATIONS: Final = 10_000
_FULL_OPERATIONS: Final = 100_000
_PROCESSES: Final = 2


class _Case(NamedTuple):
    """A simulated workload, from the first access on or in use."""

    name: str
    in_use: bool


async def run(options: Options) -> Measured:
    names = _QUICK if options.quick else (*_WORKLOADS,)
    cases = [_Case(name, in_use) for in_use in (True, False) for name in names]
    results: list[Result] = []
    with ProcessPoolExecutor(_PROCESSES) as pool:
        worlds = [_world(case, options) for case in cases]
        starts = 2 if options.quick else 10
        options.log(f"{worlds[0].workload.operations:,} operations of each workload")
        for case, report in zip(cases, pool.map(_compare, worlds, repeat(starts)), strict=True):
            results += _results(case, report, options)
    return Measured(results)


def _world(case: _Case, options: Options) -> World:
    operations = _QUICK_OPERATIONS if options.quick else _OPERATIONS
    operations = _FULL_OPERATIONS if options.full else operations
    mix, _ = _WORKLOADS[case.name]
    warm_up = operations if case.in_use else 0
    return World(YcsbWorkload(mix, operations, warm_up=warm_up), seed=options.seed)


def _compare(world: World, starts: int) -> SimulationReport:
    return compare(Prepared.of(world), Question(_WEIGHTS, starts=starts))


def _results(case: _Case, report: SimulationReport, options: Options) -> Iterator[Result]:
    costs: dict[str, float] = {entry.name: entry.cost for entry in report.entries}
    settings = {entry.name: entry.settings for entry in report.entries}
    name = f"workload {case.name}{'' if case.in_use else ', from the first access on'}"
    options.log(f"{name}: {costs}, static {settings['static']}, CATE {settings['cate']}")
    if any(entry.run.tally.beyond_bound for entry in report.entries):
        raise Failed("a read was older than the bound")

    def result(title: str, estimator: str, baseline: str, bar: float | None) -> Result:
        figures = costs[estimator], costs[baseline]
        return Result(f"{name}: {title}", "per access", *figures, bar, small_is_good=True)

    _, bar = _WORKLOADS[case.name]
    yield result("best CATE against the best static life", "cate", "static", bar)
    yield result("learner against the best static life", "learner", "static", bar)
    yield result("learner against the best CATE", "learner", "cate", 1.0 if case.in_use else None)
    yield result("oracle against the best static life", "oracle", "static", None)
