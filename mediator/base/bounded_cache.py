"""Caches of what is computed from immutable arguments, bounded in number and in memory.

Users decide on the arguments, such as queries, and on how large they are. So the size of the
arguments is measured when a result is computed; finding one costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

__all__ = ["MOST_BYTES", "BoundedCache", "IdentityCache"]

_T = TypeVar("_T")

MOST_BYTES: Final = 4 * 2**20
"""About how much memory the arguments that one cache keeps may take."""

_COLLECTIONS: Final = (tuple, list, dict, set, frozenset)

_LARGEST: Final = MOST_BYTES // 8
"""Arguments beyond are not kept; to measure them takes no more than a millisecond or two."""


class BoundedCache(Generic[_T]):
    """Calls a pure function once for equal arguments.

    Several threads may call it: at worst they compute the same.

    Args:
        compute: The function; its arguments never change.
        entries: Results that are kept, with their arguments, up to `MOST_BYTES`; beyond that all
            are forgotten.
        measured: Dataclasses whose fields count for the size of an argument that is one of them,
            or holds one. Other objects are shared, and count as themselves; collections count
            always.
    """

    def __init__(
        self, compute: Callable[..., _T], entries: int, measured: tuple[type, ...] = ()
    ) -> None:
        self._compute = compute
        self._entries = entries
        self._measured = frozenset(measured)
        self._known: dict[Hashable, tuple[tuple[Any, ...], _T]] = {}
        self._bytes = 0

    def __call__(self, *args: Any) -> _T:
        key = self._key(args)
        known = self._known.get(key)
        return self._computed(key, args) if known is None else known[1]

    def __len__(self) -> int:
        """Return how many results are kept."""
        return len(self._known)

    def _key(self, args: tuple[Any, ...]) -> Hashable:
        return args

    def _computed(self, key: Hashable, args: tuple[Any, ...]) -> _T:
        result = self._compute(*args)
        size = _size_of(args, self._measured)
        if size > _LARGEST:
            return result
        if len(self._known) >= self._entries or self._bytes + size > MOST_BYTES:
            self._known.clear()
            self._bytes = 0
        self._known[key] = (args, result)
        self._bytes += size
        return result


class IdentityCache(BoundedCache[_T]):
    """Calls a pure function once for the same arguments, looked up by their identity.

    Equal keys may differ here: 1, 1.0 and true are equal in Python, and are different constants of
    a filter. And to hash a filter takes as long as to plan a query. Callers that keep an object,
    such as a query that was read before, find what was computed from it. As long as it is kept,
    no other object has its identity.
    """

    def _key(self, args: tuple[Any, ...]) -> Hashable:
        return tuple(map(id, args))


def _size_of(args: tuple[Any, ...], measured: frozenset[type]) -> int:
    """Return about how many bytes arguments take; of those beyond `_LARGEST` it stops there."""
    size, pending = 0, [*args]
    while pending and size <= _LARGEST:
        value = pending.pop()
        size += getsizeof(value)
        if type(value) in measured:
            pending += [getattr(value, name) for name in value.__match_args__]
        elif isinstance(value, _COLLECTIONS):
            pending += value
            if isinstance(value, dict):
                pending += value.values()
    return size
