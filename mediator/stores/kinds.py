"""The kinds of store; a driver is imported when its kind is first used."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from mediator.stores.port import Store, SystemConfig

__all__ = ["ENTRY_POINTS", "is_store_kind", "make_store", "store_kinds"]

ENTRY_POINTS: Final = "portolan.stores"
"""The group of entry points under which a package offers a store, called with a `SystemConfig`."""

_OURS: Final = {
    "redis": ("mediator.stores.redis", "RedisStore"),
    "postgresql": ("mediator.stores.postgres", "PostgresStore"),
    "mongodb": ("mediator.stores.mongo", "MongoStore"),
}


def store_kinds() -> tuple[str, ...]:
    """Return the names of all kinds: ours, then those of installed packages."""
    return tuple(dict.fromkeys([*_OURS, *(p.name for p in entry_points(group=ENTRY_POINTS))]))


def is_store_kind(name: str) -> bool:
    """Whether there is such a kind; for ours, the installed packages are not searched."""
    return name in _OURS or name in store_kinds()


def make_store(config: SystemConfig) -> Store:
    """Make an unopened store of the kind that a configuration names.

    Raises:
        ValueError: There is no such kind.
    """
    if config.kind in _OURS:
        module, name = _OURS[config.kind]
        store: Store = getattr(import_module(module), name)(config)
        return store
    for point in entry_points(group=ENTRY_POINTS, name=config.kind):
        theirs: Store = point.load()(config)
        return theirs
    raise ValueError(f"{config.kind} is not a kind of store; use one of {', '.join(store_kinds())}")
