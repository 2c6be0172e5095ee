"""The limits of tenants, and the metering of requests against them, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from mediator.base.clock import Clock, SystemClock
from mediator.base.errors import StorageFull, TooManyRequests
from mediator.query.budget import Ceiling

__all__ = ["UNLIMITED", "Meter", "RunBound", "Storage", "TenantLimits", "refusal"]

_SAVED_S: Final = 10.0
"""Seconds for which unused records accumulate."""

_LONGEST_RETRY_S: Final = 86_400.0
_RUN_RETRY_S: Final = 10.0
_NONE: Final = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of a tenant at one replica; None: no limit.

    Attributes:
        rate: Requests in a second.
        burst: Requests at once, after a pause.
        in_flight: Requests that are being answered at the same time.
        body_bytes: Bytes of a request's body, or of a line of an import.
        query_rows: Records that stores may send for one query.
        query_seconds: Time of one query, in seconds.
        rows_rate: Records that stores send for its queries in a second, on average.
        stream_seconds: Time of one import, export, feed or download, in seconds.
        runs: Runs of its databases that have not ended, in the whole installation.
        objects: Objects that its databases hold together, in the whole installation.
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

    @property
    def of_operations(self) -> bool:
        """Whether any of them is about operations on objects."""
        return (self.query_rows, self.query_seconds, self.rows_rate, self.objects) != _NONE

    @property
    def of_queries(self) -> Ceiling:
        """What one query may cost."""
        return Ceiling(self.query_rows, self.query_seconds)


class Storage(Protocol):
    """Knows how many objects tenants keep."""

    def of(self, tenant: str) -> int:
        """Return how many objects a tenant has."""

    def grew(self, tenant: str, by: int) -> None:
        """Note that objects were created, or (below 0) deleted."""


class _NoStorage:
    def of(self, tenant: str) -> int:  # noqa: ARG002 - see Storage
        return 0

    def grew(self, tenant: str, by: int) -> None:
        """Note nothing."""


class Meter:
    """The account of one tenant.

    Attributes:
        bounds_operations: Whether operations on objects are bounded, and not only requests.
        in_flight: Requests that are being answered.
    """

    __slots__ = (
        "_clock",
        "_paid_until_s",
        "_reserved",
        "_storage",
        "_submitting",
        "_tokens",
        "_tokens_at_s",
        "bounds_operations",
        "in_flight",
        "limits",
        "tenant",
    )

    def __init__(self, tenant: str, limits: TenantLimits, clock: Clock, storage: Storage) -> None:
        self.tenant = tenant
        self.in_flight = 0
        self._clock = clock
        self._storage = storage
        self._submitting = 0
        self._reserved = 0
        self._tokens = float(limits.burst)
        self._tokens_at_s = self._paid_until_s = clock.monotonic()
        self.adopt(limits)

    def adopt(self, limits: TenantLimits) -> None:
        """Go by other limits from now on."""
        self.limits = limits
        self.bounds_operations = limits.of_operations

    def enter(self) -> None:
        """Let a request in, which is to end with one less `in_flight`; raises `TooManyRequests`."""
        limits = self.limits
        if limits.in_flight is not None and self.in_flight >= limits.in_flight:
            raise refusal("in_flight", f"{limits.in_flight} requests are being answered already.")
        if limits.rate is not None:
            self._take_token(limits.rate, limits.burst)
        self.in_flight += 1

    def _take_token(self, rate: float, burst: int) -> None:
        now_s = self._clock.monotonic()
        tokens = min(burst, self._tokens + (now_s - self._tokens_at_s) * rate)
        self._tokens_at_s = now_s
        self._tokens = tokens
        if tokens < 1:
            why = f"{rate:g} requests in a second are allowed."
            raise refusal("rate", why, (1 - tokens) / rate)
        self._tokens = tokens - 1

    def spend(self, rows: float) -> None:
        """Charge for records that stores have sent."""
        rate = self.limits.rows_rate
        if rate is not None:
            saved_s = self._clock.monotonic() - _SAVED_S
            self._paid_until_s = max(self._paid_until_s, saved_s) + rows / rate

    @property
    def debt_s(self) -> float:
        """Seconds until what was spent is made good; 0 or less: it is."""
        if self.limits.rows_rate is None:
            return 0.0
        return self._paid_until_s - self._clock.monotonic()

    @property
    def room(self) -> float:
        """How many objects may be created still, besides those that are being created."""
        most = self.limits.objects
        if most is None:
            return float("inf")
        return most - self._storage.of(self.tenant) - self._reserved

    @contextmanager
    def reserving(self, objects: int) -> Iterator[None]:
        """Keep room for objects while the block creates them, perhaps."""
        self._reserved += objects
        try:
            yield
        finally:
            self._reserved -= objects

    def grew(self, by: int) -> None:
        """Note that objects were created, or (below 0) deleted."""
        if by and self.limits.objects is not None:
            self._storage.grew(self.tenant, by)

    def full(self) -> StorageFull:
        """Return what a creation is answered for which there is no room."""
        most = self.limits.objects
        detail = (
            f"The tenant may keep {most} objects, and does: delete some, or ask the operator for"
            " more. Objects that are there can be changed."
        )
        return StorageFull(detail, extra={"limit": "objects", "objects": most})

    def is_over(self, seconds: float) -> bool:
        """Whether a stream has taken as long as one may."""
        most = self.limits.stream_seconds
        return most is not None and seconds >= most

    def limit_of(self, error: Exception) -> str | None:
        """Name the limit that an error says was reached; None: it is about something else."""
        extra = getattr(error, "extra", None) or {}
        if "limit_bytes" in extra and extra["limit_bytes"] == self.limits.body_bytes:
            return "body_bytes"
        limit: str | None = extra.get("limit")
        return limit

    @contextmanager
    def submitting(self) -> Iterator[int]:
        """Count a run that is about to be queued; yields how many others are, at the same time."""
        self._submitting += 1
        try:
            yield self._submitting - 1
        finally:
            self._submitting -= 1


def refusal(limit: str, why: str, after_s: float = 1.0) -> TooManyRequests:
    """Return the error of a request beyond a limit of `TenantLimits`; `why` is a sentence."""
    detail = f"The tenant's limit is reached: {why}"
    retry_after_s = ceil(min(after_s, _LONGEST_RETRY_S))
    return TooManyRequests(detail, retry_after_s=retry_after_s, extra={"limit": limit})


@dataclass(frozen=True, slots=True)
class RunBound:
    """How many runs of some databases may be under way.

    Attributes:
        databases: Those of one tenant.
        most: How many of their runs may not have ended.
        pending: How many others are just being submitted, and count as if they were there.
    """

    databases: tuple[str, ...]
    most: int
    pending: int = 0

    def refusal(self) -> TooManyRequests:
        """Return the error of one too many."""
        return refusal("runs", f"{self.most} runs are under way already.", _RUN_RETRY_S)


UNLIMITED: Final = Meter("", TenantLimits(), SystemClock(), _NoStorage())
"""The meter without limits."""
