"""Leases: the port that grants them, and what a holder presents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["Lease", "Leasing"]

_PREFIX: Final = "portolan:lease:"


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    token: str

    @property
    def key(self) -> str:
        return _PREFIX + self.name


class Leasing(Protocol):
    """Grants leases; see `mediator.coordination.leases.Leases`."""

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        """Take or renew a lease; false if another token holds it."""

    async def release(self, name: str, token: str) -> None:
        """Release a lease, if it has this token."""
