"""What services of a run have found out about its servers, for those that come after.

Examining three servers takes fifteen seconds, and half of all test modules start a service with a
catalogue of its own. What is examined is the server, not the catalogue: new ones receive it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.registrations import CatalogueSystems, StoredSystem
from mediator.stores.port import SystemConfig

__all__ = ["recall", "remember"]

_FOUND: dict[tuple[str, ...], StoredSystem] = {}


async def recall(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Write known examinations of systems to a catalogue, except those that it has."""
    known = [found for config in configs if (found := _FOUND.get(_key(config))) is not None]
    if known:
        async with _systems(catalogue_url) as systems:
            stored = {system.name for system in await systems.load()}
            for found in known:
                if found.name not in stored:
                    await systems.change(found.name, partial(_as_found, found))


async def remember(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Keep what a service has found out that was just started."""
    new = [config for config in configs if _key(config) not in _FOUND]
    if new:
        async with _systems(catalogue_url) as systems:
            stored = {system.name: system for system in await systems.load()}
        for config in new:
            system = stored.get(config.name)
            if system is not None and system.findings:
                _FOUND[_key(config)] = system


@asynccontextmanager
async def _systems(catalogue_url: str) -> AsyncIterator[CatalogueSystems]:
    catalogue = Catalogue(catalogue_url)
    await catalogue.open()
    try:
        yield CatalogueSystems(catalogue)
    finally:
        await catalogue.close()


def _key(config: SystemConfig) -> tuple[str, ...]:
    url = urlsplit(config.url)
    server = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()  # whoever the user is
    return config.name, config.kind, server, str(config.durability), str(config.partitions)


def _as_found(found: StoredSystem, _: StoredSystem | None) -> StoredSystem:
    return found
