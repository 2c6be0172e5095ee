"""The port called around every write to a store; the sketch is injected here as the guard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from mediator.model.effects import Effect

__all__ = ["Effects", "NullGuard", "WriteGuard", "guard_key"]

Effects: TypeAlias = Callable[[bool], Mapping[str, Sequence[Effect]]]
"""Tells by class what a write did to objects, as far as it is known: more if nobody else wrote the
same keys between `begin` and `end`, which is the argument."""


def guard_key(class_name: str, id_: str, group: str) -> str:
    """Name one cache group of one object, as the sketch knows it (docs/protocol.md, "Keys")."""
    return f"{class_name}/{id_}#{group}"


class WriteGuard(Protocol):
    """Told before a write reaches a store and after it has (docs/protocol.md, "Writing")."""

    async def begin(self, database: str, keys: Sequence[str]) -> str:
        """Mark the keys as being written; if it fails, the write is refused. Returns a token."""

    wants_versions: bool
    """Whether `end` is to be told versions; where nobody asks, nobody collects them."""

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        """Whether it makes a difference what objects were like before these fields change.

        Asked between `begin` and the write; None stands for objects as a whole.
        """

    async def end(
        self,
        database: str,
        token: str,
        versions: Mapping[str, int],
        effects: Effects | None = None,
        created: Collection[str] = (),
    ) -> None:
        """Clear the mark; the write is acknowledged only after this returns.

        `versions` tells for each key that is known to have one by now which version it has,
        `created` names those of them whose records were not there before.
        Without `effects` every object of the classes may have changed.
        """

    async def unsure(self, database: str, class_name: str) -> None:
        """Take every object of a class for changed: a write is acknowledged that others ended."""

    async def renew(self, database: str, class_name: str) -> None:
        """Take every copy of a class that was ever handed out for stale: its stores went back."""


class NullGuard:
    """No caches to keep coherent."""

    wants_versions = False

    async def begin(self, database: str, keys: Sequence[str]) -> str:  # noqa: ARG002 - the port's shape
        """Do nothing."""
        return ""

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:  # noqa: ARG002 - the port's shape
        """Nothing makes a difference."""
        return False

    async def end(
        self,
        database: str,
        token: str,
        versions: Mapping[str, int],
        effects: Effects | None = None,
        created: Collection[str] = (),
    ) -> None:
        """Do nothing."""

    async def unsure(self, database: str, class_name: str) -> None:
        """Do nothing."""

    async def renew(self, database: str, class_name: str) -> None:
        """Do nothing."""
