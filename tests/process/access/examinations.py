"""What services of a run have found out about its servers, for those that come after.

Examining three servers takes fifteen seconds, and half of all test modules start a service with a
catalogue of its own. What is examined is the server, not the catalogue: new ones receive it. The
processes of a run start the same programs with the same settings, so they share what they found.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.registrations import CatalogueSystems, StoredSystem
from mediator.stores.port import SystemConfig

__all__ = ["recall", "remember", "same_server", "share"]

_FOUND: dict[str, StoredSystem] = {}
_OF_THE_RUN: set[str] = set()
_SHARED: list[Path] = []


def share(directory: Path, urls: Iterable[str]) -> None:
    """Share findings in a directory; each process of the run has servers like these."""
    _SHARED.append(directory)
    _OF_THE_RUN.update(map(_server, urls))


def same_server(url: str, other: str) -> None:
    """State that the server at an address is reached at another one as well."""
    if _server(url) in _OF_THE_RUN:
        _OF_THE_RUN.add(_server(other))


async def recall(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Write known examinations of systems to a catalogue, except those that it has."""
    known = [(config, found) for config in configs if (found := _find(_key(config))) is not None]
    if known:
        async with _systems(catalogue_url) as systems:
            stored = {system.name: system for system in await systems.load()}
            for config, found in known:
                if found.name not in stored:
                    await systems.change(found.name, partial(_as_found, config, found))


async def remember(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Keep what a service has found out that was just started."""
    new = [config for config in configs if _find(_key(config)) is None]
    if new:
        async with _systems(catalogue_url) as systems:
            stored = {system.name: system for system in await systems.load()}
        for config in new:
            system = stored.get(config.name)
            if system is not None and system.findings:
                _keep(_key(config), system)


@asynccontextmanager
async def _systems(catalogue_url: str) -> AsyncIterator[CatalogueSystems]:
    catalogue = Catalogue(catalogue_url)
    await catalogue.open()
    try:
        yield CatalogueSystems(catalogue)
    finally:
        await catalogue.close()


def _key(config: SystemConfig) -> str:
    server = _server(config.url)
    # Servers whose durability is stated are started by tests, all of them in the same way.
    is_alike = server in _OF_THE_RUN or config.durability is not None
    which = "" if is_alike else sha256(server.encode()).hexdigest()
    return f"{config.name}-{config.kind}-{config.durability}-{config.partitions}-{which}"


def _server(url: str) -> str:
    """Return an address without the user."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _find(key: str) -> StoredSystem | None:
    for directory in _SHARED:
        if key not in _FOUND and (file := directory / key).exists():
            _FOUND[key] = StoredSystem(**orjson.loads(file.read_bytes()))
    return _FOUND.get(key)


def _keep(key: str, found: StoredSystem) -> None:
    _FOUND[key] = found
    for directory in _SHARED:
        written = directory / f"{key}.{os.getpid()}"
        written.write_bytes(orjson.dumps(asdict(found)))
        written.rename(directory / key)


def _as_found(config: SystemConfig, found: StoredSystem, _: StoredSystem | None) -> StoredSystem:
    return replace(found, registration={**found.registration, "config": asdict(config)})
