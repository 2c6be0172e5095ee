"""The kinds of store that there are; drivers are imported only for those that are used."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from mediator.stores.port import Store, SystemConfig

__all__ = ["KINDS", "make_store"]

KINDS: Final = {
    "redis": ("mediator.stores.redis", "RedisStore"),
    "postgresql": ("mediator.stores.postgres", "PostgresStore"),
    "mongodb": ("mediator.stores.mongo", "MongoStore"),
}


def make_store(config: SystemConfig) -> Store:
    """Make an unopened store of the kind that a configuration names.

    Raises:
        ValueError: There is no such kind.
    """
    if config.kind not in KINDS:
        raise ValueError(f"{config.kind} is no kind of store; there are {', '.join(KINDS)}")
    module, name = KINDS[config.kind]
    store: Store = getattr(import_module(module), name)(config)
    return store
