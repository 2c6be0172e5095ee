"""A system whose server is not running yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mediator.stores.kinds import make_store
from mediator.stores.port import Store, StoreUnavailable, SystemConfig

__all__ = ["ClosedStores"]


@dataclass
class ClosedStores:
    """A store factory; stores of one system cannot be opened until `opens` is true."""

    system: str
    opens: bool = False

    def __call__(self, config: SystemConfig) -> Store:
        store = make_store(config)
        if config.name != self.system:
            return store
        proxy: Any = _Closed(store, self)
        typed: Store = proxy
        return typed


class _Closed:
    def __init__(self, store: Store, server: ClosedStores) -> None:
        self._store, self._server = store, server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        if not self._server.opens:
            raise StoreUnavailable("connection refused")
        await self._store.open()
