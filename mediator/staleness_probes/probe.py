"""Measures for how long writes are not seen, by correct bounds (Wingerath et al., 2015).

One process writes and reads with one monotonic clock, so synchronised clocks are not needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from secrets import token_hex
from typing import Final

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.staleness_probes.model import Measurement, ProbePlan
from mediator.staleness_probes.path import ProbePath, Versions

__all__ = ["Probe", "ProbeResults"]

LANES: Final = 32
"""Objects measured concurrently."""

MIN_PAUSE_S: Final = 0.001
PAUSE_SHARE: Final = 0.05
"""The pause between reads is at most 5 % of the elapsed time: a narrow interval with few reads."""


@dataclass(slots=True)
class ProbeResults:
    """The results of a probe: measurements in the order of their ends, and failures.

    `reasons` has each reason of failures once; `left_behind` are scratch objects that could not be
    removed.
    """

    measurements: list[Measurement] = field(default_factory=list)
    failures: int = 0
    reasons: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    def add_failure(self, error: MediatorError) -> None:
        self.failures += 1
        if error.detail not in self.reasons:
            self.reasons.append(error.detail)


class Probe:
    """Writes to scratch objects, and reads each one until it sees the write."""

    def __init__(self, path: ProbePath, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def run(self, plan: ProbePlan, results: ProbeResults) -> None:
        """Measure, adding to the results; scratch objects are removed in any case."""
        started, numbers = self._clock.monotonic(), iter(range(plan.count))
        name = f"portolan-probe-{token_hex(8)}"
        # Enough for the rate even if every measurement runs into its timeout.
        lanes = min(plan.count, LANES, ceil(plan.rate * plan.timeout_s) + 1)
        async with asyncio.TaskGroup() as tasks:
            for lane in range(lanes):
                work = self._lane(f"{name}-{lane}", numbers, started, plan, results)
                tasks.create_task(work)

    async def _lane(
        self,
        id_: str,
        numbers: Iterator[int],
        started: float,
        plan: ProbePlan,
        results: ProbeResults,
    ) -> None:
        """Measure on one object, at a rate shared with other lanes."""
        exists = False
        try:
            for number in numbers:
                await asyncio.sleep(started + number / plan.rate - self._clock.monotonic())
                if self._clock.monotonic() > started + plan.max_duration_s:
                    return
                try:
                    if not exists:
                        await self._path.create(id_)
                        exists = True
                    results.measurements.append(await self._measure(id_, plan.timeout_s))
                except MediatorError as error:
                    results.add_failure(error)
        finally:
            try:
                await self._path.remove(id_)
            except MediatorError:
                results.left_behind.append(id_)

    async def _measure(self, id_: str, timeout_s: float) -> Measurement:
        await self._path.read(
            id_
        )  # fills caches on the path with the version about to become stale
        sent = self._clock.monotonic()
        written = await self._path.write(id_)
        acknowledged = self._clock.monotonic()
        lower_s = 0.0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    requested_at = self._clock.monotonic()
                    if _shows(await self._path.read(id_), written):
                        return Measurement(lower_s, self._clock.monotonic() - sent)
                    lower_s = requested_at - acknowledged
                    elapsed = self._clock.monotonic() - acknowledged
                    await asyncio.sleep(max(MIN_PAUSE_S, elapsed * PAUSE_SHARE))
        except TimeoutError:
            return Measurement(lower_s, None)


def _shows(versions: Versions | None, written: Versions) -> bool:
    """Whether the versions read are at least as new as those written, in every group."""
    if versions is None:
        return False
    pairs = ((versions.get(group), version) for group, version in written.items() if version)
    return all(read is not None and read >= version for read, version in pairs)
