"""Measures for how long writes are not seen: the bounds that are right (Wingerath et al., 2015).

One process writes and reads, with one monotonic clock: nothing depends on clocks that agree.
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

__all__ = ["Probe", "Probed"]

LANES: Final = 32
"""Objects that are measured on at the same time."""

SHORTEST_PAUSE_S: Final = 0.001
PAUSE_SHARE: Final = 0.05
"""Between two reads pass at most 5 % of what has passed: the interval stays narrow, reads few."""


@dataclass(slots=True)
class Probed:
    """What came of a probe: measurements in the order in which they ended, and failures.

    `reasons` has each reason of a failure once; scratch objects that could not be removed are
    `left_behind`.
    """

    measurements: list[Measurement] = field(default_factory=list)
    failures: int = 0
    reasons: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    def failed(self, error: MediatorError) -> None:
        self.failures += 1
        if error.detail not in self.reasons:
            self.reasons.append(error.detail)


class Probe:
    """Writes to scratch objects, and reads each until the write is seen."""

    def __init__(self, path: ProbePath, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def run(self, plan: ProbePlan, probed: Probed) -> None:
        """Measure, adding to what was probed; scratch objects are removed, whatever happens."""
        begun, numbers = self._clock.monotonic(), iter(range(plan.count))
        name = f"portolan-probe-{token_hex(8)}"
        # Enough for the rate even if every measurement takes as long as it may.
        lanes = min(plan.count, LANES, ceil(plan.rate * plan.timeout_s) + 1)
        async with asyncio.TaskGroup() as tasks:
            for lane in range(lanes):
                work = self._lane(f"{name}-{lane}", numbers, begun, plan, probed)
                tasks.create_task(work)

    async def _lane(
        self, id_: str, numbers: Iterator[int], begun: float, plan: ProbePlan, probed: Probed
    ) -> None:
        """Measure on one object, at a rate shared with other lanes."""
        there = False
        try:
            for number in numbers:
                await asyncio.sleep(begun + number / plan.rate - self._clock.monotonic())
                if self._clock.monotonic() > begun + plan.longest_s:
                    return
                try:
                    if not there:
                        await self._path.create(id_)
                        there = True
                    probed.measurements.append(await self._measure(id_, plan.timeout_s))
                except MediatorError as error:
                    probed.failed(error)
        finally:
            try:
                await self._path.remove(id_)
            except MediatorError:
                probed.left_behind.append(id_)

    async def _measure(self, id_: str, timeout_s: float) -> Measurement:
        await self._path.read(id_)  # now caches on the way hold what is about to be old
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
                    passed = self._clock.monotonic() - acknowledged
                    await asyncio.sleep(max(SHORTEST_PAUSE_S, passed * PAUSE_SHARE))
        except TimeoutError:
            return Measurement(lower_s, None)


def _shows(found: Versions | None, written: Versions) -> bool:
    """Whether what was read is at least as new as what was written, in every group."""
    if found is None:
        return False
    pairs = ((found.get(group), version) for group, version in written.items() if version)
    return all(seen is not None and seen >= version for seen, version in pairs)
