"""Leases: the port that grants them, and a lease as its holder shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["Lease", "Leasing"]

_PREFIX: Final = "portolan:lease:"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its holder shows it: what it is for, and the holder's token."""

    name: str
    token: str

    @property
    def key(self) -> str:
        """The key that has the token while the lease is held."""
        return _PREFIX + self.name


class Leasing(Protocol):
    """Grants leases; see `mediator.coordination.leases.Leases`."""

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        """Take or renew a lease."""

    async def release(self, name: str, token: str) -> None:
        """Release a lease."""
