"""Caches of results computed from immutable arguments, bounded in number and memory.

Users choose the arguments, such as queries, and their sizes. So the size of the arguments is
measured when a result is computed; a hit costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

__all__ = ["MAX_BYTES", "BoundedCache", "IdentityCache"]

_T = TypeVar("_T")

MAX_BYTES: Final = 4 * 2**20
"""Approximate limit of the memory of all arguments in one cache."""

_COLLECTIONS: Final = (tuple, list, dict, set, frozenset)

_MAX_ARGUMENT_BYTES: Final = MAX_BYTES // 8
"""Larger arguments are not cached; measuring them takes at most a millisecond or two."""


class BoundedCache(Generic[_T]):
    """Calls a pure function once for equal arguments.

    Several threads can call it: at worst they compute the same result.

    Args:
        compute: The function; its arguments never change.
        entries: Limit of cached results, whose arguments take up to `MAX_BYTES`; beyond either
            limit the cache is cleared.
        measured: Dataclasses whose fields count for the size of an argument that is or contains
            one of them. Other objects are shared, and count without their fields; collections
            always count.
    """

    def __init__(
        self, compute: Callable[..., _T], entries: int, measured: tuple[type, ...] = ()
    ) -> None:
        self._compute = compute
        self._entries = entries
        self._measured = frozenset(measured)
        self._results: dict[Hashable, tuple[tuple[Any, ...], _T]] = {}
        self._bytes = 0

    def __call__(self, *args: Any) -> _T:
        key = self._key(args)
        cached = self._results.get(key)
        return self._compute_and_cache(key, args) if cached is None else cached[1]

    def __len__(self) -> int:
        """Return how many results are cached."""
        return len(self._results)

    def _key(self, args: tuple[Any, ...]) -> Hashable:
        return args

    def _compute_and_cache(self, key: Hashable, args: tuple[Any, ...]) -> _T:
        result = self._compute(*args)
        size = _size_of(args, self._measured)
        if size > _MAX_ARGUMENT_BYTES:
            return result
        if len(self._results) >= self._entries or self._bytes + size > MAX_BYTES:
            self._results.clear()
            self._bytes = 0
        self._results[key] = (args, result)
        self._bytes += size
        return result


class IdentityCache(BoundedCache[_T]):
    """Calls a pure function once for the same arguments, looked up by their identity.

    Equal keys can differ here: 1, 1.0 and true are equal in Python, but different constants of a
    filter. And hashing a filter takes as long as planning a query. Callers that keep an object,
    such as a parsed query, get the result computed from it. While it is cached, no other object
    has its identity.
    """

    def _key(self, args: tuple[Any, ...]) -> Hashable:
        return tuple(map(id, args))


def _size_of(args: tuple[Any, ...], measured: frozenset[type]) -> int:
    """Return the approximate bytes of arguments; counting stops beyond `_MAX_ARGUMENT_BYTES`."""
    size, pending = 0, [*args]
    while pending and size <= _MAX_ARGUMENT_BYTES:
        value = pending.pop()
        size += getsizeof(value)
        if type(value) in measured:
            pending += [getattr(value, name) for name in value.__match_args__]
        elif isinstance(value, _COLLECTIONS):
            pending += value
            if isinstance(value, dict):
                pending += value.values()
    return size
