"""Marks of transactions on records, set and taken away through the systems at hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from mediator.errors import Conflict
from mediator.stores.port import Fragment, Lockable, Standing, StoreError
from mediator.systems import Systems, unavailable

__all__ = ["Marker", "Marks"]

_T = TypeVar("_T")


class Marks(Protocol):
    """Knows whose marks there are."""

    async def look_after(self, fragment: Fragment, id_: str, mark: str) -> None:
        """See to it that a mark whose transaction is over, or orphaned, does not stay.

        Raises:
            Unavailable: The catalogue or a system does not answer.
        """


class Marker:
    """Marks records; every call raises `Unavailable` if the system does not answer.

    Args:
        systems: The systems at hand.
    """

    def __init__(self, systems: Systems) -> None:
        self._systems = systems

    async def lock(self, fragment: Fragment, id_: str, mark: str) -> Standing:
        """Mark a record that has no mark; see `Lockable.lock`."""
        return (await self._ask(fragment, lambda store: store.lock([(fragment, id_)], mark)))[0]

    async def unlock(self, fragment: Fragment, id_: str, mark: str) -> None:
        """Take a mark away, if it is this one."""
        await self._ask(fragment, lambda store: store.unlock([(fragment, id_)], mark))

    async def standing(self, fragment: Fragment, id_: str) -> Standing:
        """Tell what stands of a record."""
        return (await self._ask(fragment, lambda store: store.standing([(fragment, id_)])))[0]

    async def _ask(self, fragment: Fragment, call: Callable[[Lockable], Awaitable[_T]]) -> _T:
        guarded = self._systems.get(fragment.system)
        store = guarded.store
        if not isinstance(store, Lockable):
            raise Conflict(f"The system {fragment.system} takes no part in transactions.")

        async def asked() -> _T:
            return await call(store)

        try:
            return await guarded.guarded(asked)
        except StoreError as error:
            raise unavailable(guarded, error, "read") from error
