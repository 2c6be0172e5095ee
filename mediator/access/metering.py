"""The limits of tenants, and the metering of requests against them, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Final

from mediator.access.stored_objects import StoredObjects
from mediator.base.clock import Clock, SystemClock
from mediator.base.errors import StorageFull, TooManyRequests

__all__ = ["UNLIMITED", "Delay", "Meter", "RunBound", "TenantLimits", "refusal"]

_SAVED_S: Final = 10.0
"""Seconds for which unused records accumulate as credit."""

_MAX_RETRY_S: Final = 86_400.0
_RUN_RETRY_S: Final = 10.0
_RECHECK_S: Final = 0.05
"""Seconds after which a waiting request checks whether another one has ended."""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of a tenant at one replica; None: no limit.

    Attributes:
        rate: Requests per second.
        burst: Requests at once, after a pause.
        in_flight: Concurrent requests.
        body_bytes: Bytes of a request's body, or of a line of an import.
        query_rows: Records that stores may send for one query.
        query_seconds: Time of one query, in seconds.
        rows_rate: Average records per second that stores send for its queries.
        stream_seconds: Time of one import, export, feed or download, in seconds.
        runs: Runs of its databases that have not ended, in the whole installation.
        objects: Objects in all its databases, in the whole installation.
        priority: The priority of its requests, from 0 to 100, and the highest of its runs;
            admission control refuses and stops work of a low one.
    """

    rate: float | None = None
    burst: int = 100
    in_flight: int | None = None
    body_bytes: int | None = None
    query_rows: int | None = None
    query_seconds: float | None = None
    rows_rate: float | None = None
    stream_seconds: float | None = None
    runs: int | None = None
    objects: int | None = None
    priority: int = 100


@dataclass(frozen=True, slots=True)
class Delay:
    """A reached limit, and the seconds after which it may be free again."""

    limit: str
    seconds: float


class Meter:
    """The account of one tenant.

    Attributes:
        bounds_operations: Whether operations on objects are bounded, not only requests.
        in_flight: Requests being answered.
        admitted: Requests admitted since the process started.
    """

    __slots__ = (
        "_clock",
        "_paid_until_s",
        "_reserved",
        "_stored",
        "_submitting",
        "_tokens",
        "_tokens_at_s",
        "admitted",
        "bounds_operations",
        "in_flight",
        "limits",
        "tenant",
    )

    def __init__(
        self, tenant: str, limits: TenantLimits, clock: Clock, stored: StoredObjects | None
    ) -> None:
        self.tenant = tenant
        self.in_flight = self.admitted = 0
        self._clock = clock
        self._stored = stored
        self._submitting = 0
        self._reserved = 0
        self._tokens = float(limits.burst)
        self._tokens_at_s = self._paid_until_s = clock.monotonic()
        self.adopt(limits)

    def adopt(self, limits: TenantLimits) -> None:
        self.limits = limits
        of_operations = (limits.query_rows, limits.query_seconds, limits.rows_rate, limits.objects)
        self.bounds_operations = of_operations != (None, None, None, None)

    def enter(self) -> None:
        """Count a request, which the caller ends by `in_flight -= 1`; raises `TooManyRequests`."""
        limits = self.limits
        if limits.in_flight is not None and self.in_flight >= limits.in_flight:
            raise refusal("in_flight", f"{limits.in_flight} requests are being answered already.")
        if limits.rate is not None:
            self._take_token(limits.rate, limits.burst)
        self.admitted += 1
        self.in_flight += 1

    def _take_token(self, rate: float, burst: int) -> None:
        tokens = self._earned(rate, burst)
        if tokens < 1:
            why = f"{rate:g} requests in a second are allowed."
            raise refusal("rate", why, (1 - tokens) / rate)
        self._tokens = tokens - 1

    def _earned(self, rate: float, burst: int) -> float:
        """Return the current tokens."""
        now_s = self._clock.monotonic()
        self._tokens = min(burst, self._tokens + (now_s - self._tokens_at_s) * rate)
        self._tokens_at_s = now_s
        return self._tokens

    @property
    def delay(self) -> Delay | None:
        """The limit that delays the next request; None: it can be executed at once."""
        limits = self.limits
        if limits.in_flight is not None and self.in_flight >= limits.in_flight:
            return Delay("in_flight", _RECHECK_S)
        if limits.rate is not None:
            missing = 1 - self._earned(limits.rate, limits.burst)
            if missing > 0:
                return Delay("rate", missing / limits.rate)
        return Delay("rows_rate", self.debt_s) if self.debt_s > 0 else None

    def spend(self, rows: float) -> None:
        rate = self.limits.rows_rate
        if rate is not None:
            saved_s = self._clock.monotonic() - _SAVED_S
            # A time in the future is debt, one in the past is credit, of which `_SAVED_S` count.
            self._paid_until_s = max(self._paid_until_s, saved_s) + rows / rate

    @property
    def debt_s(self) -> float:
        """Seconds until the debt is repaid; 0 or less: no debt."""
        if self.limits.rows_rate is None:
            return 0.0
        return self._paid_until_s - self._clock.monotonic()

    @property
    def room(self) -> float:
        """How many more objects may be created, besides those being created."""
        limit = self.limits.objects
        if limit is None or self._stored is None:
            return float("inf")
        return limit - self._stored.of(self.tenant) - self._reserved

    @contextmanager
    def reserving(self, objects: int) -> Iterator[None]:
        """Keep room for objects that the block may create."""
        self._reserved += objects
        try:
            yield
        finally:
            self._reserved -= objects

    def adjust(self, by: int) -> None:
        """Count created or (below 0) deleted objects."""
        if by and self._stored is not None and self.limits.objects is not None:
            self._stored.adjust(self.tenant, by)

    def full(self) -> StorageFull:
        limit = self.limits.objects
        detail = (
            f"The tenant has reached its limit of {limit} objects: delete some, or let the operator"
            " raise the limit. Existing objects can be changed."
        )
        return StorageFull(detail, extra={"limit": "objects", "objects": limit})

    def is_over(self, seconds: float) -> bool:
        limit = self.limits.stream_seconds
        return limit is not None and seconds >= limit

    def limit_of(self, error: Exception) -> str | None:
        """Return the limit that caused an error; None: another cause."""
        extra = getattr(error, "extra", None) or {}
        if "limit_bytes" in extra and extra["limit_bytes"] == self.limits.body_bytes:
            return "body_bytes"
        limit: str | None = extra.get("limit")
        return limit

    @contextmanager
    def submitting(self) -> Iterator[int]:
        """Count a run being submitted; yields the number of other concurrent submissions."""
        self._submitting += 1
        try:
            yield self._submitting - 1
        finally:
            self._submitting -= 1


def refusal(limit: str, why: str, after_s: float = 1.0) -> TooManyRequests:
    """Return the error of a request beyond a limit of `TenantLimits`; `why` is a sentence."""
    detail = f"The tenant's limit is reached: {why}"
    retry_after_s = ceil(min(after_s, _MAX_RETRY_S))
    return TooManyRequests(detail, retry_after_s=retry_after_s, extra={"limit": limit})


@dataclass(frozen=True, slots=True)
class RunBound:
    """The limit of active runs in a tenant's databases; `pending` are being submitted."""

    databases: tuple[str, ...]
    limit: int
    pending: int = 0

    def refusal(self) -> TooManyRequests:
        return refusal("runs", f"{self.limit} runs are under way already.", _RUN_RETRY_S)


UNLIMITED: Final = Meter("", TenantLimits(), SystemClock(), None)
"""The meter without limits."""
