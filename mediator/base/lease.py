"""A lease as its holder shows it to those who act for the holder alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Lease"]

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
