"""A system whose server is not there yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mediator.stores.kinds import make_store
from mediator.stores.port import Store, StoreUnavailable, SystemConfig

__all__ = ["ClosedStores"]


@dataclass
class ClosedStores:
    """Makes stores, of which those of one system cannot be opened until its server `opens`."""

    system: str
    opens: bool = False

    def __call__(self, config: SystemConfig) -> Store:
        store = make_store(config)
        if config.name != self.system:
            return store
        closed: Any = _Closed(store, self)
        opened: Store = closed
        return opened


class _Closed:
    def __init__(self, store: Store, server: ClosedStores) -> None:
        self._store, self._server = store, server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        if not self._server.opens:
            raise StoreUnavailable("connection refused")
        await self._store.open()
