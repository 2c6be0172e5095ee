"""The kinds of store; the driver of a kind is imported on first use."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from mediator.stores.port import Store, SystemConfig

__all__ = ["ENTRY_POINTS", "is_store_kind", "make_store", "store_kinds"]

ENTRY_POINTS: Final = "portolan.stores"
"""The group of entry points under which a package offers a store, called with a `SystemConfig`."""

_BUILT_IN: Final = {
    "redis": ("mediator.stores.redis", "RedisStore"),
    "postgresql": ("mediator.stores.postgres", "PostgresStore"),
    "mongodb": ("mediator.stores.mongo", "MongoStore"),
}


def store_kinds() -> tuple[str, ...]:
    """Return the names of all kinds: built-in ones, then those of installed packages."""
    return tuple(dict.fromkeys([*_BUILT_IN, *(p.name for p in entry_points(group=ENTRY_POINTS))]))


def is_store_kind(name: str) -> bool:
    """Whether the kind exists; for built-in ones, installed packages are not searched."""
    return name in _BUILT_IN or name in store_kinds()


def make_store(config: SystemConfig) -> Store:
    """Create an unopened store of the kind that a configuration names.

    Raises:
        ValueError: The kind is unknown.
    """
    if config.kind in _BUILT_IN:
        module, name = _BUILT_IN[config.kind]
        store: Store = getattr(import_module(module), name)(config)
        return store
    for point in entry_points(group=ENTRY_POINTS, name=config.kind):
        extension: Store = point.load()(config)
        return extension
    raise ValueError(f"{config.kind} is not a kind of store; use one of {', '.join(store_kinds())}")
