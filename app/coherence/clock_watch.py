"""Watching the clock of the sketch: if it is set forward, copies outlive what is known of them.

The sketch holds for each key until when copies of it may be used, by its own clock. One that jumps
forward passes these times too early, and a write would not add the key to the filter. So every
class is invalidated then. A clock that is set back does no harm: keys stay in the filter longer,
and clients judge answers that carry its time by what it showed before (`sketch.client.clock`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mediator.base.clock import DRIFT, Clock
from mediator.base.errors import Unavailable
from sketch.protocol.port import Partition, ServerSketch, SketchUnavailable
from sketch.protocol.wire import LATE_S

__all__ = ["LOOKED_EVERY_S", "ClockWatch"]

LOOKED_EVERY_S: Final = 0.5
SET_US: Final = 250_000
"""Microseconds by which a clock is ahead of what it can have become before it counts as set."""


class _Look(NamedTuple):
    shown_us: int
    sent_at: float
    answered_at: float


@dataclass(eq=False)
class ClockWatch:
    """Compares the sketch's clock with this process's monotonic clock.

    Attributes:
        _invalidate: Invalidates a class (database, class); raises `Unavailable`.
        _partitions: Returns all partitions.
    """

    _sketch: ServerSketch
    _invalidate: Callable[[str, str], Awaitable[None]]
    _partitions: Callable[[], Iterable[Partition]]
    _clock: Clock
    _last: _Look | None = field(default=None, init=False)
    _due: set[Partition] = field(default_factory=set, init=False)

    async def look(self) -> None:
        """Read the sketch's clock; if it was set forward since, invalidate all classes.

        Raises:
            Unavailable: The sketch does not answer; what is left is done the next time.
        """
        sent_at = self._clock.monotonic()
        try:
            shown_us = (await self._sketch.snapshot(())).time_us
        except SketchUnavailable as error:
            raise Unavailable(str(error), system="sketch") from error
        if shown_us > self._latest_us() + SET_US:
            self._due.update(self._partitions())
        self._last = _Look(shown_us, sent_at, self._clock.monotonic())
        for partition in tuple(self._due):
            await self._invalidate(*partition)
            self._due.discard(partition)

    def earliest_us(self) -> int | None:
        """Return a time that the clock has shown by now, unless it was set back since.

        None: the last look was too long ago.
        """
        look, now = self._last, self._clock.monotonic()
        if look is None or now - look.sent_at > LATE_S:
            return None
        # A lower bound: since the answer arrived, by a clock that may be fast.
        return look.shown_us + int((now - look.answered_at) * (1 - DRIFT) * 1_000_000)

    def _latest_us(self) -> float:
        """Return the latest time that the clock shows now, unless it was set."""
        look = self._last
        if look is None:
            return float("inf")
        # An upper bound: since the request was sent, by a clock that may be slow.
        passed_s = self._clock.monotonic() - look.sent_at
        return look.shown_us + passed_s * (1 + DRIFT) * 1_000_000
