"""Calls to the stores of fragments that are neither reads nor writes of a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Store, StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["FragmentCalls"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class FragmentCalls:
    """Raises `Unavailable` if a system does not answer."""

    _systems: Systems

    async def on(
        self,
        fragment: Fragment,
        operation: Literal["read", "write"],
        call: Callable[[Store], Coroutine[Any, Any, _T]],
    ) -> _T:
        guarded = self._systems.get(fragment.system)
        try:
            return await guarded.guarded(lambda: call(guarded.store))
        except StoreError as error:
            raise unavailable(guarded, error, operation) from error

    async def count(self, route: ClassRoute) -> int:
        return await self.on(route.anchor, "read", lambda store: store.count(route.anchor))

    async def has_objects(self, route: ClassRoute) -> bool:
        """Whether any object exists; counting takes time in proportion to their number."""
        anchor = route.anchor
        return bool(await self.on(anchor, "read", lambda store: store.scan(anchor, None, 1, ())))
