"""A cache of what is computed from immutable objects, looked up by their identity.

Equal keys may differ here: 1, 1.0 and true are equal in Python, and are different constants of a
filter. And to hash a filter takes as long as to plan a query. Callers that keep an object, such as
a query that was read before, find what was computed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["IdentityCache"]

_T = TypeVar("_T")


class IdentityCache(Generic[_T]):
    """Calls a pure function once for the same arguments.

    Args:
        compute: The function; its arguments never change.
        size: Results that are kept, with their arguments; beyond that all are forgotten.
    """

    def __init__(self, compute: Callable[..., _T], size: int) -> None:
        self._compute = compute
        self._size = size
        self._known: dict[tuple[int, ...], tuple[tuple[Any, ...], _T]] = {}

    def __call__(self, *args: Any) -> _T:
        key = tuple(map(id, args))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._size:
                self._known.clear()
            # As long as the arguments are kept, no other object has their identity.
            known = self._known[key] = (args, self._compute(*args))
        return known[1]
