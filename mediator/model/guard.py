"""The port called around every write to a store; the sketch is injected here as the guard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from mediator.model.effects import Effect

__all__ = ["CacheKey", "Effects", "NullGuard", "WriteGuard", "WriteToken"]

Effects: TypeAlias = Callable[[bool], Mapping[str, Sequence[Effect]]]
"""Returns by class what a write did to objects, as far as it is known. The argument says whether no
other write had the same keys between `begin` and `end`; then more is known."""


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

    most_keys: int
    """How many keys one `begin` takes at most."""

    async def begin(self, database: str, keys: Sequence[CacheKey]) -> WriteToken:
        """Announce a write to these keys; if this fails, the write is refused."""

    def depends_on(self, database: str, class_name: str, touched: Collection[str] | None) -> bool:
        """Whether it makes a difference what objects were like before these fields change.

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
        """Note that a write is done; it is acknowledged only after this returns.

        `versions` are those of the keys that are known by now. `effects` returns what the write
        did; None: every object of its classes may have changed. `created` are those of the keys
        whose records were not there before.
        """

    async def invalidate_results(self, database: str, class_name: str) -> None:
        """Take every result of a class for changed: a write of it was ended elsewhere."""

    async def invalidate_class(self, database: str, class_name: str) -> None:
        """Take every copy of a class that was ever handed out for stale: its stores went back."""


class NullGuard:
    """No caches to keep coherent."""

    wants_versions = False
    most_keys = sys.maxsize

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
