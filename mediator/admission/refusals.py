"""Requests that rules refuse for a while: of a tenant, of low priority, or for a class.

Every refusal ends by itself. So a rule that does not fire again, for whatever reason, refuses
nobody for longer than it said, and there is no action that takes a refusal back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError, TooManyRequests, Unavailable

__all__ = ["LIMIT", "LONGEST_S", "Refusals", "bounded"]

LIMIT: Final = "admission"
"""What metrics and problems name as the limit."""

LONGEST_S: Final = 3600.0
_ABOVE_ALL: Final = 101.0
"""A priority that no request has."""

_WHY: Final = "Admission control refuses {} for a while: the service is overloaded."

_Key = TypeVar("_Key", str, int)


@dataclass(eq=False)
class Refusals:
    """The refusals in force at this replica; times are monotonic.

    Attributes:
        active: Whether there may be any: all that a request looks at where there are none.
    """

    _clock: Clock
    active: bool = field(default=False, init=False)
    _tenants: dict[str, float] = field(default_factory=dict, init=False)
    _classes: dict[str, float] = field(default_factory=dict, init=False)
    _below: dict[int, float] = field(default_factory=dict, init=False)
    """By the priority below which requests are refused: priorities are integers up to 100."""

    def refuse_tenant(self, name: str, seconds: float) -> None:
        self._refuse(self._tenants, name, seconds)

    def refuse_below(self, priority: float, seconds: float) -> None:
        """Refuse what has a lower priority; an undefined one refuses nothing."""
        # In this order not a number becomes 0.
        self._refuse(self._below, ceil(min(max(0.0, priority), _ABOVE_ALL)), seconds)

    def refuse_class(self, name: str, seconds: float) -> None:
        """Refuse requests for a class, by its name as ``database.class``."""
        self._refuse(self._classes, name, seconds)

    def expire(self) -> None:
        """Forget what has ended."""
        now = self._clock.monotonic()
        self._tenants = {name: until for name, until in self._tenants.items() if until > now}
        self._classes = {name: until for name, until in self._classes.items() if until > now}
        self._below = {below: until for below, until in self._below.items() if until > now}
        self.active = bool(self._tenants or self._classes or self._below)

    def clear(self) -> None:
        """End all: other rules are in force."""
        self._tenants, self._classes, self._below = {}, {}, {}
        self.active = False

    def check_tenant(self, name: str, priority: int) -> None:
        """Return if a request of a tenant is not refused; call it only while `active`.

        Raises:
            TooManyRequests: The tenant is refused.
            Unavailable: All of its priority are.
        """
        left_s = self._left_s(self._tenants.get(name))
        if left_s > 0:
            detail = _WHY.format("the requests of this tenant")
            extra = {"limit": LIMIT}
            raise TooManyRequests(detail, retry_after_s=ceil(left_s), extra=extra)
        concerning = [(until, below) for below, until in self._below.items() if priority < below]
        until, below = max(concerning, default=(None, 0))  # none of them lets it in earlier
        left_s = self._left_s(until)
        if left_s > 0:
            raise _unavailable(f"requests of a priority below {below}", left_s)

    def check_class(self, database: str, name: str) -> None:
        """Return if requests for a class are not refused; raises `Unavailable`."""
        left_s = self._left_s(self._classes.get(f"{database}.{name}"))
        if left_s > 0:
            raise _unavailable(f"requests for {name}", left_s)

    def _left_s(self, until: float | None) -> float:
        return 0.0 if until is None else until - self._clock.monotonic()

    def _refuse(self, ends: dict[_Key, float], key: _Key, seconds: float) -> None:
        """Refuse for some seconds, or until a refusal that is in force ends, if that is later."""
        self.active = True
        ends[key] = max(ends.get(key, 0.0), self._clock.monotonic() + bounded(seconds))


def bounded(seconds: float) -> float:
    """Return for how long an action may last that was computed to last so long; 1 if undefined."""
    return min(max(1.0, seconds), LONGEST_S)


def _unavailable(what: str, left_s: float) -> MediatorError:
    refused = Unavailable(_WHY.format(what), system="service", retry_after_s=ceil(left_s))
    refused.extra["limit"] = LIMIT
    return refused
