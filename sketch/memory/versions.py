"""Versions that are known for certain, and leases to fill those that are not."""

from __future__ import annotations

from uuid import uuid4

__all__ = ["Versions"]


class Versions:
    """The last version of each key that caches may hold.

    While writes to a key are pending nothing is told of it, but the highest version that one of
    them made is kept in mind: the write that ends last need not be the one that came last.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._fills: dict[str, str] = {}
        self._unseen: dict[str, int | None] = {}

    def of(self, key: str) -> int | None:
        """Return the version of a key, if it is known for certain."""
        return self._known.get(key)

    def fill_of(self, key: str) -> str | None:
        """Return the token that lets a key be filled, if it waits for that."""
        return self._fills.get(key)

    def await_fill(self, key: str) -> None:
        """Let a key be filled, if nothing is known of it; several readers share the token."""
        if key not in self._known:
            self._fills.setdefault(key, uuid4().hex)

    def fill(self, key: str, tokens: frozenset[str], version: int) -> None:
        """Set a version that was read, unless a write came between."""
        if self._fills.get(key) in tokens:
            del self._fills[key]
            self._known[key] = version

    def forget(self, key: str) -> None:
        """Know nothing of a key, and ignore what readers have read until now."""
        for kept in (self._known, self._fills, self._unseen):
            kept.pop(key, None)

    def record_write(self, key: str, version: int | None, *, pending: bool) -> None:
        """Set the version that a write made; None: it is not known."""
        before = self._unseen.get(key, 0)
        last = None if version is None or before is None else max(before, version)
        self.forget(key)
        if pending:
            self._unseen[key] = last
        elif last is not None:
            self._known[key] = last
