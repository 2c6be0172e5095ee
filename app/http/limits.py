"""How much one tenant may ask for: a token bucket for requests, and a bound on those under way.

Each replica keeps its own account of a tenant, so an installation of n replicas lets through n
times as much. It protects the tenants from one another; it is no quota that is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Final

from app.http.problems import TOO_MANY_REQUESTS, HttpError
from mediator.clock import Clock

__all__ = ["ANONYMOUS", "UNKNOWN", "Limits", "TenantLimiter"]

ANONYMOUS: Final = "(anonymous)"
"""The account of requests that do not say who sends them; no tenant can have this name."""

UNKNOWN: Final = "(unknown)"
"""The account of requests whose credentials are no good."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may ask of one replica.

    Attributes:
        rate: Requests in a second; None: as many as there are.
        burst: Requests at once, after a pause.
        in_flight: Requests that are being answered; None: as many as there are.
    """

    rate: float | None = None
    burst: int = 100
    in_flight: int | None = None


class _Account:
    """What a tenant has used: tokens that are left, when that was so, and what is under way."""

    __slots__ = ("at_s", "in_flight", "tokens")

    def __init__(self, tokens: float, at_s: float) -> None:
        self.tokens = tokens
        self.at_s = at_s
        self.in_flight = 0


class TenantLimiter:
    """Lets requests in, or tells when to come again.

    Args:
        limits: Returns the limits of a tenant.
        clock: The time.
    """

    def __init__(self, limits: Callable[[str], Limits], clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def enter(self, tenant: str) -> None:
        """Let a request in; `leave` is to follow.

        Raises:
            HttpError: There are too many, with the seconds after which there is room again.
        """
        limits, now_s = self._limits(tenant), self._clock.monotonic()
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(limits.burst, now_s)
        if limits.in_flight is not None and account.in_flight >= limits.in_flight:
            raise _refuse(f"{limits.in_flight} requests are being answered already.", 1)
        if limits.rate is not None:
            self._spend(account, limits.rate, limits.burst, now_s)
        account.in_flight += 1

    @contextmanager
    def held(self, tenant: str) -> Iterator[None]:
        """Let a request in while the block runs; raises what `enter` does."""
        self.enter(tenant)
        try:
            yield
        finally:
            self.leave(tenant)

    def leave(self, tenant: str) -> None:
        """Note that a request was answered."""
        self._accounts[tenant].in_flight -= 1

    @staticmethod
    def _spend(account: _Account, rate: float, burst: int, now_s: float) -> None:
        tokens = min(burst, account.tokens + (now_s - account.at_s) * rate)
        account.at_s = now_s
        account.tokens = tokens
        if tokens < 1:
            raise _refuse(f"{rate:g} requests in a second are allowed.", ceil((1 - tokens) / rate))
        account.tokens = tokens - 1


def _refuse(why: str, after_s: int) -> HttpError:
    headers = [("Retry-After", str(after_s))]
    return HttpError(TOO_MANY_REQUESTS, f"The tenant's limit is reached: {why}", headers=headers)
