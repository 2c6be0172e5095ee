"""The port called around every write to a store; the sketch is injected here as the guard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from mediator.model.effects import Effect

__all__ = ["CacheKey", "Effects", "NullGuard", "WriteGuard", "WriteToken"]

Effects: TypeAlias = Callable[[bool], Mapping[str, Sequence[Effect]]]
"""Returns the known effects of a write on objects, by class. The argument: whether no other write
had the same keys between `begin` and `end`; then more is known."""


class CacheKey(NamedTuple):
    """One cache group of one object; its text is the sketch's key (docs/protocol.md, "Keys")."""

    class_name: str
    id: str
    group: str

    def __str__(self) -> str:
        return f"{self.class_name}/{self.id}#{self.group}"

    @classmethod
    def parse(cls, text: str) -> CacheKey:
        """Read a key as the sketch returns it."""
        class_name, _, rest = text.partition("/")
        id_, _, group = rest.rpartition("#")
        return cls(class_name, id_, group)


class WriteToken(NamedTuple):
    """Identifies a write from `begin` to `end`.

    Attributes:
        text: Identifies it to the fences of stores; empty: it is never fenced.
        classes: The classes it writes to.
    """

    text: str = ""
    classes: tuple[str, ...] = ()


_NO_TOKEN = WriteToken()


class WriteGuard(Protocol):
    """Called before a write reaches a store, and after it has (docs/protocol.md, "Writing")."""

    wants_versions: bool
    """Whether `end` needs versions; else they are not collected."""

    max_keys: int
    """Limit of keys of one `begin`."""

    async def begin(self, database: str, keys: Sequence[CacheKey]) -> WriteToken:
        """Announce a write to these keys; if this fails, the write is refused."""

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        """Whether the state of objects before these fields change makes a difference.

        Called between `begin` and the write; None stands for objects as a whole.
        """

    async def end(
        self,
        database: str,
        token: WriteToken,
        versions: Mapping[CacheKey, int],
        effects: Effects | None = None,
        created: Collection[CacheKey] = (),
    ) -> None:
        """End a write; it is acknowledged only after this returns.

        `versions` holds the known versions by key. `effects` returns the effects of the write;
        None: every object of its classes may have changed. `created` are the keys whose records
        did not exist before.
        """

    async def invalidate_results(self, database: str, class_name: str) -> None:
        """Take every query result of a class for changed: a write to it ended elsewhere."""

    async def invalidate_class(self, database: str, class_name: str) -> None:
        """Take every cached copy of a class for stale: its stores rolled back."""


class NullGuard:
    """No caches to keep coherent."""

    wants_versions = False
    max_keys = sys.maxsize

    async def begin(self, database: str, keys: Sequence[CacheKey]) -> WriteToken:  # noqa: ARG002 - the port's shape
        return _NO_TOKEN

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:  # noqa: ARG002 - the port's shape
        return False

    async def end(
        self,
        database: str,
        token: WriteToken,
        versions: Mapping[CacheKey, int],
        effects: Effects | None = None,
        created: Collection[CacheKey] = (),
    ) -> None:
        """Do nothing."""

    async def invalidate_results(self, database: str, class_name: str) -> None:
        """Do nothing."""

    async def invalidate_class(self, database: str, class_name: str) -> None:
        """Do nothing."""
