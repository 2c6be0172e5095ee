"""Rate limits of tenants: the accounts of one port.

Each replica keeps its own account of a tenant, so an installation of n replicas lets through n
times as many requests. It protects the tenants from one another; it is no quota that is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mediator.access.metering import Meter, Storage, TenantLimits
from mediator.base.clock import Clock
from mediator.base.errors import TooManyRequests
from mediator.base.observation import Observer, RequestRefused

__all__ = ["ANONYMOUS", "UNKNOWN", "TenantLimiter"]

ANONYMOUS: Final = "(anonymous)"
"""The account of requests that do not say who sends them; no tenant can have this name."""

UNKNOWN: Final = "(unknown)"
"""The account of requests whose credentials are no good."""


class TenantLimiter:
    """Lets requests in, or answers when to come again."""

    def __init__(
        self,
        limits: Callable[[str], TenantLimits],
        storage: Storage,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._limits = limits
        self._storage = storage
        self._clock = clock
        self._observe = observe
        self._meters: dict[str, Meter] = {}

    def enter(self, tenant: str) -> Meter:
        """Let a request in; returns the tenant's account. `leave` is to follow.

        Raises:
            TooManyRequests: There are too many.
        """
        limits = self._limits(tenant)
        meter = self._meters.get(tenant)
        if meter is None:
            meter = self._meters[tenant] = Meter(tenant, limits, self._clock, self._storage)
        elif meter.limits is not limits:
            meter.adopt(limits)
        try:
            meter.enter()
        except TooManyRequests as error:
            self._observe(RequestRefused(tenant, error.extra["limit"]))
            raise
        return meter

    @staticmethod
    def leave(meter: Meter) -> None:
        """Note that a request was answered."""
        meter.in_flight -= 1

    @contextmanager
    def held(self, tenant: str) -> Iterator[None]:
        """Let a request in while the block runs; raises what `enter` does."""
        meter = self.enter(tenant)
        try:
            yield
        finally:
            self.leave(meter)
