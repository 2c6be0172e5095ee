"""Joint writes over several systems: which writes are joint, and their write intents.

See docs/transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from mediator.base.concurrency import by_system, results_or_raise
from mediator.base.errors import Conflict, MediatorError
from mediator.model.operations import Update, WriteOperation
from mediator.routing.fragments import changed_fragments, is_partial
from mediator.routing.model import ClassRoute
from mediator.stores.port import (
    Lockable,
    RecordKey,
    RecordState,
    SizedWrite,
    Status,
    StoreError,
    TakenClaim,
    Write,
    WriteKind,
    WriteResult,
    is_bounded,
    is_claiming,
    is_lockable,
)
from mediator.stores.systems import Systems, unavailable

__all__ = ["ForeignIntents", "IntentResolver", "IntentStore", "is_joint", "lacks_fragment"]

_K = TypeVar("_K", RecordKey, Write, SizedWrite)
_T = TypeVar("_T")

ForeignIntents: TypeAlias = Mapping[str, Sequence[RecordKey]]
"""Write intents of other writes, and the records on which they were met."""


class IntentResolver(Protocol):
    """Resolves the writes whose intents were met."""

    async def resolve(self, foreign_intents: ForeignIntents) -> None:
        """Roll committed writes forward, unlock finished ones; raises `Unavailable`."""


class IntentStore:
    """Sets, reads and removes write intents, with one round trip for each system."""

    def __init__(self, systems: Systems) -> None:
        self._systems = systems

    async def lock_each(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState | MediatorError]:
        """Set an intent on each record that has none; see `Lockable.lock`.

        The records of a system that does not answer get the error instead.
        """
        return await self._send(keys, lambda store, batch: store.lock(batch, intent, redo))

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        """Set an intent on each record that has none; raises `Unavailable`."""
        return results_or_raise(await self.lock_each(keys, intent, redo))

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove an intent from all its records; raises `Unavailable` once all systems are done."""

        async def unlock(store: Lockable, batch: Sequence[RecordKey]) -> Sequence[None]:
            await store.unlock(batch, intent, joint=joint)
            return [None] * len(batch)

        results_or_raise(await self._send(keys, unlock))

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | MediatorError | None]:
        """Reserve the values that writes claim under their intents; see `Claiming.reserve`."""

        async def reserve(store: Lockable, batch: Sequence[Write]) -> Sequence[TakenClaim | None]:
            if not is_claiming(store):
                raise Conflict(f"The system {batch[0].fragment.system} keeps no values unique.")
            return await store.reserve(batch)

        return await self._send(writes, reserve)

    async def exceeding(self, calls: Sequence[SizedWrite]) -> list[bool | MediatorError]:
        """Return for each write whether its record would be too large; see `Bounded.exceeding`."""

        async def exceeding(store: Lockable, batch: Sequence[SizedWrite]) -> Sequence[bool]:
            return await store.exceeding(batch) if is_bounded(store) else [False] * len(batch)

        return await self._send(calls, exceeding)

    def is_bounded(self, system: str) -> bool:
        """Whether a system bounds the bytes of records."""
        store = self._systems.find(system)
        return store is not None and is_bounded(store.store)

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        """Return the states of records, see `Lockable.record_states`; raises `Unavailable`."""
        return results_or_raise(
            await self._send(keys, lambda store, batch: store.record_states(batch, redo=redo))
        )

    async def _send(
        self,
        keys: Sequence[_K],
        call: Callable[[Lockable, Sequence[_K]], Coroutine[Any, Any, Sequence[_T]]],
    ) -> list[_T | MediatorError]:
        async def send(system: str, batch: Sequence[_K]) -> Sequence[_T]:
            guarded = self._systems.get(system)
            store = guarded.store
            if not is_lockable(store):
                raise Conflict(f"The system {system} takes no part in writes over several systems.")
            try:
                return await guarded.guarded(partial(call, store, batch))
            except StoreError as error:
                raise unavailable(guarded, error, "read") from error

        return await by_system(keys, _system_of, send)


def _system_of(key: RecordKey | Write | SizedWrite) -> str:
    first = key if isinstance(key, Write) else key[0]
    return first.fragment.system if isinstance(first, Write) else first.system


def is_joint(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a write, or its condition, concerns several fragments of its object."""
    if len(route.fragments) == 1:
        return False
    if not isinstance(operation, Update) or operation.is_empty or is_partial(route, operation):
        return True
    (changed, _), *more = changed_fragments(route, operation.touched)
    if more or not operation.condition.versions:
        return bool(more)
    groups = {group for versions in operation.condition.versions for group in versions}
    return any(not groups.isdisjoint(f.groups) for f in route.fragments if f is not changed)


def lacks_fragment(route: ClassRoute, write: Write, result: WriteResult) -> bool:
    """Whether an update found no record in a fragment other than the anchor, which decides."""
    return (
        result.status is Status.MISSING
        and write.kind is WriteKind.UPDATE
        and write.fragment is not route.anchor
        and not write.expect
    )
