"""Watching the clock of the sketch: if it is set forward, copies outlive what is known of them.

The sketch holds for each key until when copies of it may be used, by its own clock. One that jumps
forward passes these times too early, and a write would not add the key to the filter. So every
class is invalidated then, whether it jumps or gains little by little. A clock that is set back does
no harm: keys stay in the filter longer, and clients judge answers that carry its time by what it
showed before (`sketch.client.clock`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from app.coherence.write_guard import answered
from mediator.base.clock import DRIFT, Clock
from sketch.protocol.port import Partition, ServerSketch
from sketch.protocol.wire import LATE_S

__all__ = ["LOOKED_EVERY_S", "ClockWatch"]

LOOKED_EVERY_S: Final = 0.5
SET_US: Final = 250_000
"""Microseconds by which a clock is ahead of what it can have become before it counts as set."""

_FASTEST_US: Final = (1 + DRIFT) * 1_000_000
"""The most microseconds that the sketch's clock advances in a second of ours, if it is not set."""


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
        _lead_us: The least lead on our clock, at its fastest, that the sketch's has shown since it
            was last found set (microseconds). A clock that is not set stays below it.
    """

    _sketch: ServerSketch
    _invalidate: Callable[[str, str], Awaitable[None]]
    _partitions: Callable[[], Iterable[Partition]]
    _clock: Clock
    _last: _Look | None = field(default=None, init=False)
    _lead_us: float = field(default=inf, init=False)
    _due: set[Partition] = field(default_factory=set, init=False)

    async def look(self) -> None:
        """Read the sketch's clock; if it was set forward since, invalidate all classes.

        Raises:
            Unavailable: The sketch does not answer; what is left is done the next time.
        """
        sent_at = self._clock.monotonic()
        with answered():
            shown_us = (await self._sketch.snapshot(())).time_us
        self._last = look = _Look(shown_us, sent_at, self._clock.monotonic())
        if self._was_set(look):
            self._due.update(self._partitions())
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

    def _was_set(self, look: _Look) -> bool:
        """Whether the clock shows more than it can have become; then it is watched from here."""
        # When it was requested, or later, so that an answer that took long is not taken for a jump.
        least_us = look.shown_us - look.answered_at * _FASTEST_US
        lead_us = look.shown_us - look.sent_at * _FASTEST_US
        was_set = least_us > self._lead_us + SET_US
        # Not the last look, but the least of all: small gains would each be within the tolerance.
        self._lead_us = lead_us if was_set else min(lead_us, self._lead_us)
        return was_set
