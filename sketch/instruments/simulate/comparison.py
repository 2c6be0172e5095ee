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
_MAX_TTL_FACTOR: Final = 2.0
_MAX_TTL_LOW_S: Final = 0.1
_MAX_TTL_HIGH_S: Final = 600.0
_MAX_STEPS: Final = 50
"""From each starting point."""


class Optimum(NamedTuple):
    slope: float
    max_ttl_s: float
    cost: float
    evaluations: int


_LEVELS: Final = 1 + int(log(_MAX_TTL_HIGH_S / _MAX_TTL_LOW_S, _MAX_TTL_FACTOR))

_Point = tuple[int, int]
"""Steps of the slope from 0, and steps of the longest TTL down from its maximum."""


def hill_climbing(cost: Callable[[float, float], float], starts: int, seed: int) -> Optimum:
    """Find the slope and the longest TTL of least cost (docs/papers/cache_sketch.md).

    The first climb starts at the best longest TTL for a slope of 0, at which rates do not matter:
    there are separate hills on both sides of it. The others start at random slopes in [0, 1], which
    may become negative, and at random longest TTLs on a logarithmic scale. Points lie on a grid, so
    that climbs that meet continue as one.
    """
    random = Random(seed)  # noqa: S311 - a sample, not a secret
    costs: dict[_Point, float] = {}

    def cost_at(point: _Point) -> float:
        if point not in costs:
            costs[point] = cost(*_settings_at(point))
        return costs[point]

    starting_points = [min(((0, level) for level in range(_LEVELS)), key=cost_at)]
    while len(starting_points) < starts:
        starting_points.append((round(random.random() / _SLOPE_STEP), random.randrange(_LEVELS)))
    for starting_point in starting_points:
        current = starting_point
        for _ in range(_MAX_STEPS):
            best = min((current, *_neighbours(current)), key=cost_at)
            if best == current:
                break
            current = best
    best = min(costs, key=cost_at)
    return Optimum(*_settings_at(best), costs[best], len(costs))


def _settings_at(point: _Point) -> tuple[float, float]:
    slope, level = point
    return slope * _SLOPE_STEP, _MAX_TTL_HIGH_S * _MAX_TTL_FACTOR**-level


def _neighbours(point: _Point) -> Iterator[_Point]:
    slope, level = point
    yield slope - 1, level
    yield slope + 1, level
    if level > 0:
        yield slope, level - 1
    if level < _LEVELS - 1:
        yield slope, level + 1


Name = Literal["static", "cate", "learner", "oracle"]
ESTIMATORS: Final[tuple[Name, ...]] = ("static", "cate", "learner", "oracle")

OnStep = Callable[[str], None]
_GRID: Final = 2.0
_MIN_TTL_S: Final = 0.05
_REFINEMENTS: Final = 3
_LEAD_S: Final = 1e-5
"""The oracle's copies end this long before the write: clocks are rounded to microseconds."""


class Oracle(Static):
    """Lets every copy end just before its record is written.

    Nothing is ever invalidated, stale, or in the filter; the only misses are one for each version
    that is read, the minimum of any cache.

    `writes_s` are the times when writes of each key reach the origin, in order.
    """

    def __init__(self, writes_s: Mapping[str, Sequence[float]]) -> None:
        super().__init__()
        self._writes_s = writes_s

    def ttl_s(self, partition: Partition, keys: Sequence[str], now_s: float) -> float:  # noqa: ARG002 - the port
        return min((self._until(key, now_s) for key in keys), default=0.0)

    def _until(self, key: str, now_s: float) -> float:
        writes = self._writes_s.get(key, ())
        index = bisect_right(writes, now_s)
        return max(0.0, writes[index] - now_s - _LEAD_S) if index < len(writes) else inf


@dataclass(frozen=True, slots=True)
class Question:
    """What to compare; the search for CATE's parameters starts at `starts` points."""

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
            "max_ttl_s": world.max_ttl_s,
            "filter": asdict(world.shape),
            "seed": world.seed,
            "weights": asdict(self.question.weights),
            "entries": [entry.to_json() for entry in self.entries],
        }


def compare(
    prepared: Prepared, question: Question, on_step: OnStep = lambda _: None
) -> SimulationReport:
    """Run every estimator on the same accesses; `on_step` is called with each step's name."""
    makers: dict[Name, Callable[[Prepared, Question, OnStep], EstimatorResult]] = {
        "static": best_static,
        "cate": best_cate,
        "learner": _learner,
        "oracle": _oracle,
    }
    entries = []
    for name in question.estimators:
        on_step(name)
        entries.append(makers[name](prepared, question, on_step))
    return SimulationReport(prepared, question, entries)


def best_static(prepared: Prepared, question: Question, on_step: OnStep) -> EstimatorResult:
    """Sweep static TTLs from none to the longest, and more closely around the best."""
    runs: dict[float, SimulationRun] = {}

    def cost(ttl_s: float) -> float:
        if ttl_s not in runs:
            on_step(f"static, {ttl_s:.3g} s")
            runs[ttl_s] = simulate(prepared, lambda _: Static(ttl_s))
        return runs[ttl_s].tally.cost(question.weights)

    ttls_s, ttl_s = [0.0], prepared.world.max_ttl_s
    while ttl_s >= _MIN_TTL_S:
        ttls_s.append(ttl_s)
        ttl_s /= _GRID
    best, step = min(ttls_s, key=cost), _GRID
    for _ in range(_REFINEMENTS if best > 0 else 0):
        step **= 0.5
        max_ttl_s = prepared.world.max_ttl_s
        best = min((best, best / step, min(best * step, max_ttl_s)), key=cost)
    tried = sorted((ttl_s, cost(ttl_s)) for ttl_s in runs)
    return EstimatorResult("static", cost(best), {"ttl_s": best}, runs[best], tried)


def best_cate(prepared: Prepared, question: Question, on_step: OnStep) -> EstimatorResult:
    memory = Memory(margin_s=prepared.world.margin_s)

    def run(slope: float, max_ttl_s: float) -> SimulationRun:
        on_step(f"cate, slope {slope:.2f}, longest {max_ttl_s:.3g} s")
        settings = CateSettings(max_ttl_s, ratio=question.ratio, slope=slope)
        return simulate(prepared, lambda _: Cate(settings, memory))

    def cost(slope: float, max_ttl_s: float) -> float:
        return run(slope, max_ttl_s).tally.cost(question.weights)

    optimum = hill_climbing(cost, question.starts, prepared.world.seed)
    parameters = {"ratio": question.ratio, "slope": optimum.slope, "max_ttl_s": optimum.max_ttl_s}
    best_run = run(optimum.slope, optimum.max_ttl_s)
    return EstimatorResult(
        "cate", optimum.cost, {**parameters, "evaluations": optimum.evaluations}, best_run
    )


def _learner(prepared: Prepared, question: Question, _: OnStep) -> EstimatorResult:
    settings = LearnerSettings(prepared.world.max_ttl_s, question.weights)
    memory = Memory(margin_s=prepared.world.margin_s)
    run = simulate(prepared, lambda _: Learner(settings, memory))
    assert isinstance(run.estimator, Learner)
    learned = {
        "slope": [parameters.slope.value for parameters in run.estimator.parameters.values()],
        "max_ttl_s": [
            parameters.max_ttl_s.value for parameters in run.estimator.parameters.values()
        ],
        "regret": [asdict(regret) for regret in run.estimator.regrets.values()],
    }
    return EstimatorResult("learner", run.tally.cost(question.weights), learned, run)


def _oracle(prepared: Prepared, question: Question, _: OnStep) -> EstimatorResult:
    run = simulate(prepared, lambda accesses: Oracle(accesses.writes_s()))
    return EstimatorResult("oracle", run.tally.cost(question.weights), {}, run)
