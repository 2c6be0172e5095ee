"""Detection of forward jumps of the sketch's clock, after which copies outlive their entries.

The sketch stores for each key until when copies of it may be used, by its own clock. A clock that
jumps forward passes these times too early, and a write would not add the key to the filter. So all
classes are invalidated, whether the clock jumps or gains gradually. A clock that is set back does
no harm: keys stay in the filter longer, and clients compare times in answers with earlier ones
(`sketch.client.clock`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from app.coherence.write_guard import translating_sketch_errors
from mediator.base.clock import DRIFT, Clock
from sketch.protocol.port import Partition, ServerSketch
from sketch.protocol.wire import LATE_S

__all__ = ["CHECK_INTERVAL_S", "ClockWatch"]

CHECK_INTERVAL_S: Final = 0.5
SET_US: Final = 250_000
"""Tolerance in microseconds: a clock that is further ahead than possible counts as set."""

_MAX_US_PER_S: Final = (1 + DRIFT) * 1_000_000
"""Microseconds that the sketch's clock advances at most in a second of ours, unless it is set."""


class _Reading(NamedTuple):
    shown_us: int
    sent_at: float
    answered_at: float


@dataclass(eq=False)
class ClockWatch:
    """Compares the sketch's clock with this process's monotonic clock.

    Attributes:
        _invalidate: Invalidates a class (database, class); raises `Unavailable`.
        _partitions: Returns all partitions.
        _lead_us: The minimal lead of the sketch's clock on ours, at its maximal rate, since it was
            last found set (microseconds). A clock that is not set stays below it.
    """

    _sketch: ServerSketch
    _invalidate: Callable[[str, str], Awaitable[None]]
    _partitions: Callable[[], Iterable[Partition]]
    _clock: Clock
    _last: _Reading | None = field(default=None, init=False)
    _lead_us: float = field(default=inf, init=False)
    _due: set[Partition] = field(default_factory=set, init=False)

    async def check(self) -> None:
        """Read the sketch's clock; if it was set forward, invalidate all classes.

        Raises:
            Unavailable: The sketch does not answer; the next call continues.
        """
        sent_at = self._clock.monotonic()
        with translating_sketch_errors():
            shown_us = (await self._sketch.snapshot(())).time_us
        self._last = reading = _Reading(shown_us, sent_at, self._clock.monotonic())
        if self._was_set(reading):
            self._due.update(self._partitions())
        for partition in tuple(self._due):
            await self._invalidate(*partition)
            self._due.discard(partition)

    def earliest_us(self) -> int | None:
        """Return a time that the clock has reached by now, unless it was set back since.

        None: the last reading is too old.
        """
        reading, now = self._last, self._clock.monotonic()
        if reading is None or now - reading.sent_at > LATE_S:
            return None
        # A lower bound: the time since the answer, by a clock that may be fast.
        return reading.shown_us + int((now - reading.answered_at) * (1 - DRIFT) * 1_000_000)

    def _was_set(self, reading: _Reading) -> bool:
        """Whether the clock is further ahead than possible; then restart from this reading."""
        # It was read between request and answer, so a slow answer does not look like a jump.
        min_lead_us = reading.shown_us - reading.answered_at * _MAX_US_PER_S
        lead_us = reading.shown_us - reading.sent_at * _MAX_US_PER_S
        was_set = min_lead_us > self._lead_us + SET_US
        # The minimum of all readings, not the last: small gains would each be within the tolerance.
        self._lead_us = lead_us if was_set else min(lead_us, self._lead_us)
        return was_set
