"""All estimators on the same schedule: the best static TTL, the best CATE, learner, oracle."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, log
from random import Random
from typing import Any, Final, Literal, NamedTuple

from sketch.instruments.simulate.engine import Prepared, SimulationRun, simulate
from sketch.protocol.port import Partition
from sketch.ttl.cate import Cate, CateSettings, Ratio
from sketch.ttl.learner import Learner, LearnerSettings
from sketch.ttl.port import Static, Weights
from sketch.ttl.rates import Memory

__all__ = ["ESTIMATORS", "EstimatorResult", "Question", "SimulationReport", "compare"]

_SLOPE_STEP: Final = 0.05
_LONGEST_FACTOR: Final = 2.0
_LEAST_LONGEST_S: Final = 0.1
_MOST_LONGEST_S: Final = 600.0
_STEPS: Final = 50
"""From each start, at most."""


class Summit(NamedTuple):
    slope: float
    longest_s: float
    cost: float
    evaluations: int


_LEVELS: Final = 1 + int(log(_MOST_LONGEST_S / _LEAST_LONGEST_S, _LONGEST_FACTOR))

_Point = tuple[int, int]
"""Steps of the slope from 0, and steps of the longest TTL down from the longest one."""


def hill_climbing(cost: Callable[[float, float], float], starts: int, seed: int) -> Summit:
    """Find the slope and the longest TTL that cost least (docs/papers/cache_sketch.md).

    The first climb begins with the best longest TTL for a slope of 0, by which rates do not
    matter: left and right of it are hills of their own. Slopes of the others begin anywhere in
    [0, 1] and may become negative; longest TTLs begin anywhere on a logarithmic scale. Points lie
    on a grid, so that climbs that meet go on as one.
    """
    random = Random(seed)  # noqa: S311 - a sample, not a secret
    known: dict[_Point, float] = {}

    def at(point: _Point) -> float:
        if point not in known:
            known[point] = cost(*_placed(point))
        return known[point]

    feet = [min(((0, level) for level in range(_LEVELS)), key=at)]
    while len(feet) < starts:
        feet.append((round(random.random() / _SLOPE_STEP), random.randrange(_LEVELS)))
    for foot in feet:
        here = foot
        for _ in range(_STEPS):
            best = min((here, *_around(here)), key=at)
            if best == here:
                break
            here = best
    best = min(known, key=at)
    return Summit(*_placed(best), known[best], len(known))


def _placed(point: _Point) -> tuple[float, float]:
    slope, level = point
    return slope * _SLOPE_STEP, _MOST_LONGEST_S * _LONGEST_FACTOR**-level


def _around(point: _Point) -> Iterator[_Point]:
    slope, level = point
    yield slope - 1, level
    yield slope + 1, level
    if level > 0:
        yield slope, level - 1
    if level < _LEVELS - 1:
        yield slope, level + 1


Name = Literal["static", "cate", "learner", "oracle"]
ESTIMATORS: Final[tuple[Name, ...]] = ("static", "cate", "learner", "oracle")

Say = Callable[[str], None]
_GRID: Final = 2.0
_SHORTEST_S: Final = 0.05
_REFINED: Final = 3
_BEFORE_S: Final = 1e-5
"""Copies of the oracle end so long before the write arrives: clocks are rounded to microseconds."""


class Oracle(Static):
    """Lets every copy end just before its record is written.

    Nothing is ever invalidated, stale, or in the filter; what is left is one miss for each version
    that is read, as many as any cache has to have.

    `writes_s` are the times when writes of each key reach the origin, in order.
    """

    def __init__(self, writes_s: Mapping[str, Sequence[float]]) -> None:
        super().__init__()
        self._writes_s = writes_s

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:  # noqa: ARG002 - the port
        return min((self._until(key, now_s) for key in keys), default=0.0)

    def _until(self, key: str, now_s: float) -> float:
        writes = self._writes_s.get(key, ())
        following = bisect_right(writes, now_s)
        return max(0.0, writes[following] - now_s - _BEFORE_S) if following < len(writes) else inf


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared; the search for CATE's parameters begins at `starts` points."""

    weights: Weights = field(default=Weights())
    ratio: Ratio = "linear"
    starts: int = 3
    estimators: Sequence[Name] = ESTIMATORS


@dataclass(frozen=True, slots=True)
class EstimatorResult:
    """Results of one estimator: its cost per access, and those of all settings tried."""

    name: Name
    cost: float
    settings: dict[str, Any]
    run: SimulationRun
    tried: Sequence[tuple[float, float]] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "estimator": self.name,
            "cost": self.cost,
            "settings": self.settings,
            "operations_per_s": self.run.operations_per_s,
            "counts": self.run.tally.to_json(),
            "tried": [{"ttl_s": ttl_s, "cost": cost} for ttl_s, cost in self.tried],
        }


@dataclass(frozen=True, slots=True)
class SimulationReport:
    prepared: Prepared
    question: Question
    entries: Sequence[EstimatorResult]

    def of(self, name: str) -> EstimatorResult | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def to_json(self) -> dict[str, Any]:
        world = self.prepared.world
        return {
            "workload": asdict(world.workload),
            "caches": ["client"] * world.client_caches + [layer.name for layer in world.layers],
            "bound_s": world.bound_s,
            "margin_s": world.margin_s,
            "longest_s": world.longest_s,
            "filter": asdict(world.shape),
            "seed": world.seed,
            "weights": asdict(self.question.weights),
            "entries": [entry.to_json() for entry in self.entries],
        }


def compare(prepared: Prepared, question: Question, say: Say = lambda _: None) -> SimulationReport:
    """Run every estimator on the same accesses; `say` is called with each step's name."""
    makers: dict[Name, Callable[[Prepared, Question, Say], EstimatorResult]] = {
        "static": best_static,
        "cate": best_cate,
        "learner": _learner,
        "oracle": _oracle,
    }
    entries = []
    for name in question.estimators:
        say(name)
        entries.append(makers[name](prepared, question, say))
    return SimulationReport(prepared, question, entries)


def best_static(prepared: Prepared, question: Question, say: Say) -> EstimatorResult:
    """Sweep static TTLs from none to the longest, and more closely around the best."""
    runs: dict[float, SimulationRun] = {}

    def cost(ttl_s: float) -> float:
        if ttl_s not in runs:
            say(f"static, {ttl_s:.3g} s")
            runs[ttl_s] = simulate(prepared, lambda _: Static(ttl_s))
        return runs[ttl_s].tally.cost(question.weights)

    ttls_s, ttl_s = [0.0], prepared.world.longest_s
    while ttl_s >= _SHORTEST_S:
        ttls_s.append(ttl_s)
        ttl_s /= _GRID
    best, step = min(ttls_s, key=cost), _GRID
    for _ in range(_REFINED if best > 0 else 0):
        step **= 0.5
        longest = prepared.world.longest_s
        best = min((best, best / step, min(best * step, longest)), key=cost)
    tried = sorted((ttl_s, cost(ttl_s)) for ttl_s in runs)
    return EstimatorResult("static", cost(best), {"ttl_s": best}, runs[best], tried)


def best_cate(prepared: Prepared, question: Question, say: Say) -> EstimatorResult:
    memory = Memory(margin_s=prepared.world.margin_s)

    def run(slope: float, longest_s: float) -> SimulationRun:
        say(f"cate, slope {slope:.2f}, longest {longest_s:.3g} s")
        settings = CateSettings(longest_s, ratio=question.ratio, slope=slope)
        return simulate(prepared, lambda _: Cate(settings, memory))

    def cost(slope: float, longest_s: float) -> float:
        return run(slope, longest_s).tally.cost(question.weights)

    summit = hill_climbing(cost, question.starts, prepared.world.seed)
    found = {"ratio": question.ratio, "slope": summit.slope, "longest_s": summit.longest_s}
    again = run(summit.slope, summit.longest_s)
    return EstimatorResult("cate", summit.cost, {**found, "evaluations": summit.evaluations}, again)


def _learner(prepared: Prepared, question: Question, _: Say) -> EstimatorResult:
    settings = LearnerSettings(prepared.world.longest_s, question.weights)
    memory = Memory(margin_s=prepared.world.margin_s)
    run = simulate(prepared, lambda _: Learner(settings, memory))
    assert isinstance(run.estimator, Learner)
    learned = {
        "slope": [parameters.slope.value for parameters in run.estimator.parameters.values()],
        "longest_s": [
            parameters.longest_s.value for parameters in run.estimator.parameters.values()
        ],
        "regret": [asdict(regret) for regret in run.estimator.regrets.values()],
    }
    return EstimatorResult("learner", run.tally.cost(question.weights), learned, run)


def _oracle(prepared: Prepared, question: Question, _: Say) -> EstimatorResult:
    run = simulate(prepared, lambda known: Oracle(known.writes_s()))
    return EstimatorResult("oracle", run.tally.cost(question.weights), {}, run)
