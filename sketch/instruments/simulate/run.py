"""Simulations: a world, a schedule that all estimators share, and what each makes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np

from sketch.instruments.simulate.engine import Engine
from sketch.instruments.simulate.tally import Tally
from sketch.instruments.simulate.workload import Schedule, schedule
from sketch.instruments.simulate.world import World
from sketch.ttl.port import TtlEstimator

__all__ = ["Estimators", "Prepared", "Run", "simulate"]

Estimators = Callable[["Prepared"], TtlEstimator]
"""Makes an estimator for a run."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A world in which the accesses, and the latencies of writes, are drawn.

    Attributes:
        world: What is simulated.
        accesses: What clients do.
        arrivals_s: When writes reach the origin; for a read, of no meaning.
    """

    world: World
    accesses: Schedule
    arrivals_s: list[float]

    @classmethod
    def of(cls, world: World) -> Prepared:
        """Draw what happens in a world."""
        random = np.random.default_rng(world.seed)
        accesses = schedule(world.workload, random)
        hops = [*(layer.one_way for layer in world.layers), world.origin_one_way]
        arrivals = accesses.begin_s + sum(hop.sample(random, len(accesses.key)) for hop in hops)
        return cls(world, accesses, arrivals.tolist())

    def writes_s(self) -> Mapping[str, Sequence[float]]:
        """Return when the writes of each key reach the origin, in order."""
        times: defaultdict[str, list[float]] = defaultdict(list)
        rows = zip(
            self.arrivals_s, self.accesses.key.tolist(), self.accesses.write.tolist(), strict=True
        )
        for time, key, write in rows:
            if write:
                times[f"records/{key}#all"].append(time)
        return {key: sorted(of_key) for key, of_key in times.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """What an estimator made of it.

    Attributes:
        tally: What was counted.
        estimator: As it is now.
        operations: How many were simulated, those of the warm-up included.
        processor_s: Processor time of the run.
    """

    tally: Tally
    estimator: TtlEstimator
    operations: int
    processor_s: float

    @property
    def operations_per_s(self) -> float:
        """Simulated operations in a second of processor time."""
        return self.operations / self.processor_s


def simulate(prepared: Prepared, estimators: Estimators) -> Run:
    """Let everything happen with an estimator; the same each time."""
    estimator = estimators(prepared)
    random = np.random.default_rng((prepared.world.seed, 1))
    engine = Engine(prepared.world, prepared.accesses, prepared.arrivals_s, estimator, random)
    started = process_time()
    tally = engine.run()
    seconds = process_time() - started
    return Run(tally, estimator, prepared.accesses.operations, seconds)
