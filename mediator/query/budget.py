"""Limits of what a query may cost, and what it has cost so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mediator.base.clock import Clock
from mediator.base.errors import TooCostly

__all__ = ["Budget", "Ceiling", "Limits"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The caller's own limits on a query, in addition to `Limits`; None: no limit.

    Attributes:
        rows: Records that stores may send for it.
        seconds: Time it may take.
    """

    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may cost.

    Attributes:
        rows: Records that stores may send for it.
        seconds: Time it may take.
        groups: Groups that an aggregate may have.
    """

    rows: int = 100_000
    seconds: float = 10.0
    groups: int = 10_000

    def under(self, ceiling: Ceiling) -> Limits:
        """Return these limits, where they are not above a ceiling."""
        rows = self.rows if ceiling.rows is None else min(self.rows, ceiling.rows)
        seconds = self.seconds if ceiling.seconds is None else min(self.seconds, ceiling.seconds)
        return Limits(rows, seconds, self.groups)


@dataclass(slots=True)
class Budget:
    """The cost of one query; raises `TooCostly` when it goes beyond its limits."""

    limits: Limits
    clock: Clock
    started: float = 0.0
    rows: int = 0
    round_trips: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def left_s(self) -> float:
        """Return the seconds that are left."""
        left = self.limits.seconds - (self.clock.monotonic() - self.started)
        if left <= 0:
            raise self.too_long()
        return left

    def spend(self, system: str, rows: int) -> None:
        """Count a round trip, and the rows that came back."""
        self.round_trips[system] += 1
        self.rows += rows
        if self.rows > self.limits.rows:
            raise TooCostly(
                f"The query examines more than {self.limits.rows} rows. What helps: an index on a"
                " field of the filter, or a narrower filter.",
                extra={"rows": self.limits.rows},
            )

    def too_long(self) -> TooCostly:
        """Return the error of a query that takes too long."""
        return TooCostly(
            f"The query takes more than {self.limits.seconds:g} s. What helps: an index on a field"
            " of the filter, or a narrower filter.",
            extra={"seconds": self.limits.seconds},
        )
