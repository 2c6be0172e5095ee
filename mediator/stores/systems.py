"""The open systems by name, each guarded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeGuard

from mediator.base.clock import Clock
from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import (
    Fragment,
    Store,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    SystemConfig,
)

__all__ = ["EarliestTime", "StoreFactory", "Systems", "is_refusal", "unavailable"]

_log = logging.getLogger("portolan.systems")

_NEVER: Final = float("-inf")

StoreFactory = Callable[[SystemConfig], Store]
"""Creates an unopened store of the right kind; the composition root knows the kinds."""


class Systems:
    """The opened systems, in the order of their registration."""

    def __init__(self) -> None:
        self._stores: dict[str, GuardedStore] = {}

    def add(self, store: GuardedStore) -> None:
        self._stores[store.name] = store

    def remove(self, name: str) -> None:
        """Remove a store; no error if it is absent."""
        self._stores.pop(name, None)

    def find(self, name: str) -> GuardedStore | None:
        return self._stores.get(name)

    def get(self, name: str) -> GuardedStore:
        """Return a store.

        Raises:
            Unavailable: It is registered, because routes name it, but could not be opened so far.
        """
        store = self._stores.get(name)
        if store is None:
            raise Unavailable(f"The system {name} is not connected.", system=name)
        return store

    def __iter__(self) -> Iterator[GuardedStore]:
        return iter(self._stores.values())

    def now_for(self, fragment: Fragment) -> float:
        """Return the lower bound of the time by which a fragment's objects expire; -inf: unknown.

        It is the time of the store that assigned their creation versions, never this replica's.
        """
        store = self._stores.get(fragment.anchor_system or fragment.system)
        return store.time.now() if store is not None else _NEVER


class EarliestTime:
    """The earliest of the stores' times: expired by it means expired by each of them."""

    def __init__(self, systems: Systems, clock: Clock) -> None:
        self._systems = systems
        self.monotonic = clock.monotonic

    def now(self) -> float:
        """Return the time in seconds since the epoch; -inf: unknown."""
        return min((store.time.now() for store in self._systems), default=_NEVER)


def unavailable(
    store: GuardedStore,
    error: StoreError,
    operation: Literal["read", "write"],
    *,
    several: bool = False,
) -> Unavailable:
    """Return the problem that a client gets for the failure of a store.

    A write that timed out or whose connection broke may have taken effect (`StoreTimeout`); a write
    that the breaker rejected, or that got no connection, has not. A refused write was not applied,
    although the system works: its disk is full, say, or a table was removed. The reason is logged
    for operators. Of `several` writes perhaps only one was refused, or met a record that takes no
    writes, so the outcome of each is unknown.
    """
    retry_after_s = max(1.0, store.breaker.retry_after_s)
    refused = isinstance(error, StoreRefused)
    if refused:
        _log.warning("%s refused to %s: %s", store.name, operation, error)
    partial = several and isinstance(error, StoreRefused | StoreBusy)
    if operation == "write" and (partial or isinstance(error, StoreTimeout)):
        reason = "refused one of several writes" if partial else "did not answer"
        return OutcomeUnknown(
            f"The system {store.name} {reason}; the write may have taken effect.",
            system=store.name,
            retry_after_s=retry_after_s,
        )
    return Unavailable(
        f"The system {store.name} {'refused it' if refused else 'does not answer'}.",
        system=store.name,
        retry_after_s=retry_after_s,
    )


def is_refusal(result: object) -> TypeGuard[Unavailable]:
    """Whether a result is the problem from `unavailable` for a call that the store refused."""
    return isinstance(result, Unavailable) and isinstance(result.__cause__, StoreRefused)
