"""All estimators on the same schedule: the best static TTL, the best CATE, learner, oracle."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Final, Literal

from sketch.instruments.simulate.hill_climbing import hill_climbing
from sketch.instruments.simulate.run import Prepared, Run, simulate
from sketch.protocol.port import Partition
from sketch.ttl.cate import Cate, CateSettings, Ratio
from sketch.ttl.learner import Learner, LearnerSettings
from sketch.ttl.port import Weights
from sketch.ttl.rates import Memory
from sketch.ttl.static import Static

__all__ = ["ESTIMATORS", "Comparison", "Entry", "Oracle", "Question", "compare"]

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
        """Return the time until the next write to any of the keys."""
        return min((self._until(key, now_s) for key in keys), default=0.0)

    def _until(self, key: str, now_s: float) -> float:
        writes = self._writes_s.get(key, ())
        following = bisect_right(writes, now_s)
        return max(0.0, writes[following] - now_s - _BEFORE_S) if following < len(writes) else inf


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared; CATE is tuned by climbing from `starts` points."""

    weights: Weights = field(default=Weights())
    ratio: Ratio = "linear"
    starts: int = 3
    estimators: Sequence[Name] = ESTIMATORS


@dataclass(frozen=True, slots=True)
class Entry:
    """What one estimator achieved: its cost of an access, and those of all settings tried."""

    name: Name
    cost: float
    settings: dict[str, Any]
    run: Run
    tried: Sequence[tuple[float, float]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "estimator": self.name,
            "cost": self.cost,
            "settings": self.settings,
            "operations_per_s": self.run.operations_per_s,
            "counts": self.run.tally.to_json(),
            "tried": [{"life_s": ttl_s, "cost": cost} for ttl_s, cost in self.tried],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The entries of all estimators on the same accesses."""

    prepared: Prepared
    question: Question
    entries: Sequence[Entry]

    def of(self, name: str) -> Entry | None:
        """Return the entry of an estimator."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return everything that is needed to repeat it, and what came out."""
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


def compare(prepared: Prepared, question: Question, say: Say = lambda _: None) -> Comparison:
    """Run every estimator on the same accesses; `say` is called with what is being done."""
    makers: dict[Name, Callable[[Prepared, Question, Say], Entry]] = {
        "static": best_static,
        "cate": best_cate,
        "learner": _learner,
        "oracle": _oracle,
    }
    entries = []
    for name in question.estimators:
        say(name)
        entries.append(makers[name](prepared, question, say))
    return Comparison(prepared, question, entries)


def best_static(prepared: Prepared, question: Question, say: Say) -> Entry:
    """Sweep static TTLs from none to the longest, and more closely around the best."""
    runs: dict[float, Run] = {}

    def cost(life_s: float) -> float:
        if life_s not in runs:
            say(f"static, {life_s:.3g} s")
            runs[life_s] = simulate(prepared, lambda _: Static(life_s))
        return runs[life_s].tally.cost(question.weights)

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
    return Entry("static", cost(best), {"life_s": best}, runs[best], tried)


def best_cate(prepared: Prepared, question: Question, say: Say) -> Entry:
    """Climb the hill of slope and longest TTL."""
    memory = Memory(margin_s=prepared.world.margin_s)

    def run(slope: float, longest_s: float) -> Run:
        say(f"cate, slope {slope:.2f}, longest {longest_s:.3g} s")
        settings = CateSettings(longest_s, ratio=question.ratio, slope=slope)
        return simulate(prepared, lambda _: Cate(settings, memory))

    def cost(slope: float, longest_s: float) -> float:
        return run(slope, longest_s).tally.cost(question.weights)

    summit = hill_climbing(cost, question.starts, prepared.world.seed)
    found = {"ratio": question.ratio, "slope": summit.slope, "longest_s": summit.longest_s}
    again = run(summit.slope, summit.longest_s)
    return Entry("cate", summit.cost, {**found, "evaluations": summit.evaluations}, again)


def _learner(prepared: Prepared, question: Question, _: Say) -> Entry:
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
    return Entry("learner", run.tally.cost(question.weights), learned, run)


def _oracle(prepared: Prepared, question: Question, _: Say) -> Entry:
    run = simulate(prepared, lambda known: Oracle(known.writes_s()))
    return Entry("oracle", run.tally.cost(question.weights), {}, run)
