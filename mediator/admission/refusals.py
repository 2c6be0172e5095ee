"""Requests that rules refuse for a while: of a tenant, of low priority, or for a class.

Every refusal expires. So a rule that does not fire again, for whatever reason, refuses nobody for
longer than stated, and no action revokes a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError, TooManyRequests, Unavailable

__all__ = ["LIMIT", "MAX_DURATION_S", "Refusals", "bound_duration"]

LIMIT: Final = "admission"
"""The name of the limit in metrics and problems."""

MAX_DURATION_S: Final = 3600.0
_ABOVE_ALL: Final = 101.0
"""A priority that no request has."""

_WHY: Final = "Admission control refuses {} for a while: the service is overloaded."

_Key = TypeVar("_Key", str, int)


@dataclass(eq=False)
class Refusals:
    """The refusals in force at this replica; times are monotonic.

    Attributes:
        active: Whether any may be in force; if not, a request checks nothing else.
    """

    _clock: Clock
    active: bool = field(default=False, init=False)
    _tenants: dict[str, float] = field(default_factory=dict, init=False)
    _classes: dict[str, float] = field(default_factory=dict, init=False)
    _below: dict[int, float] = field(default_factory=dict, init=False)
    """The ends by the priority below which requests are refused, an integer up to 100."""

    def refuse_tenant(self, name: str, seconds: float) -> None:
        self._refuse(self._tenants, name, seconds)

    def refuse_below(self, priority: float, seconds: float) -> None:
        """Refuse requests of a lower priority; an undefined one (NaN) refuses nothing."""
        # In this order NaN becomes 0.
        self._refuse(self._below, ceil(min(max(0.0, priority), _ABOVE_ALL)), seconds)

    def refuse_class(self, name: str, seconds: float) -> None:
        """Refuse requests for a class, by its name as ``database.class``."""
        self._refuse(self._classes, name, seconds)

    def expire(self) -> None:
        """Remove refusals that have ended."""
        now = self._clock.monotonic()
        self._tenants = {name: until for name, until in self._tenants.items() if until > now}
        self._classes = {name: until for name, until in self._classes.items() if until > now}
        self._below = {below: until for below, until in self._below.items() if until > now}
        self.active = bool(self._tenants or self._classes or self._below)

    def clear(self) -> None:
        """Remove all refusals: other rules are in force."""
        self._tenants, self._classes, self._below = {}, {}, {}
        self.active = False

    def check_tenant(self, name: str, priority: int) -> None:
        """Return if a request of a tenant is not refused; call it only while `active`.

        Raises:
            TooManyRequests: The tenant is refused.
            Unavailable: All requests of its priority are refused.
        """
        remaining_s = self._remaining_s(self._tenants.get(name))
        if remaining_s > 0:
            detail = _WHY.format("the requests of this tenant")
            extra = {"limit": LIMIT}
            raise TooManyRequests(detail, retry_after_s=ceil(remaining_s), extra=extra)
        concerning = [(until, below) for below, until in self._below.items() if priority < below]
        until, below = max(concerning, default=(None, 0))  # the last one to end
        remaining_s = self._remaining_s(until)
        if remaining_s > 0:
            raise _unavailable(f"requests of a priority below {below}", remaining_s)

    def check_class(self, database: str, name: str) -> None:
        """Return if requests for a class are not refused; raises `Unavailable`."""
        remaining_s = self._remaining_s(self._classes.get(f"{database}.{name}"))
        if remaining_s > 0:
            raise _unavailable(f"requests for {name}", remaining_s)

    def _remaining_s(self, until: float | None) -> float:
        return 0.0 if until is None else until - self._clock.monotonic()

    def _refuse(self, ends: dict[_Key, float], key: _Key, seconds: float) -> None:
        """Refuse for some seconds, or until a current refusal ends, if later."""
        self.active = True
        ends[key] = max(ends.get(key, 0.0), self._clock.monotonic() + bound_duration(seconds))


def bound_duration(seconds: float) -> float:
    """Bound the computed duration of an action; 1 if undefined."""
    return min(max(1.0, seconds), MAX_DURATION_S)


def _unavailable(refused_requests: str, remaining_s: float) -> MediatorError:
    error = Unavailable(
        _WHY.format(refused_requests), system="service", retry_after_s=ceil(remaining_s)
    )
    error.extra["limit"] = LIMIT
    return error
