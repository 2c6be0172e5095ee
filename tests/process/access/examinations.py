"""The findings of services about the servers of a test run, which later services reuse.

Examining three servers takes fifteen seconds, and half of all test modules start a service with a
new catalogue. Findings are about the server, not the catalogue, so new catalogues receive them. The
processes of a run start the same programs with the same settings, so they share their findings.
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

_FINDINGS: dict[str, StoredSystem] = {}
_SERVERS_OF_THE_RUN: set[str] = set()
_SHARED: list[Path] = []


def share(directory: Path, urls: Iterable[str]) -> None:
    """Share findings in a directory; each process of the run has servers like these."""
    _SHARED.append(directory)
    _SERVERS_OF_THE_RUN.update(map(_server, urls))


def same_server(url: str, other: str) -> None:
    """State that the server at an address is reached at another one as well."""
    if _server(url) in _SERVERS_OF_THE_RUN:
        _SERVERS_OF_THE_RUN.add(_server(other))


async def recall(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Write known findings about systems to a catalogue, unless it has them."""
    examined = [
        (config, system) for config in configs if (system := _find(_key(config))) is not None
    ]
    if examined:
        async with _systems(catalogue_url) as systems:
            stored = {system.name: system for system in await systems.load()}
            for config, system in examined:
                if system.name not in stored:
                    await systems.change(system.name, partial(_with_findings, config, system))


async def remember(configs: Sequence[SystemConfig], catalogue_url: str) -> None:
    """Store the findings of a service that was just started."""
    new = [config for config in configs if _find(_key(config)) is None]
    if new:
        async with _systems(catalogue_url) as systems:
            stored = {system.name: system for system in await systems.load()}
        for config in new:
            system = stored.get(config.name)
            if system is not None and system.findings:
                _store(_key(config), system)


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
    is_alike = server in _SERVERS_OF_THE_RUN or config.durability is not None
    server_hash = "" if is_alike else sha256(server.encode()).hexdigest()
    return f"{config.name}-{config.kind}-{config.durability}-{config.partitions}-{server_hash}"


def _server(url: str) -> str:
    """Return an address without the user."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _find(key: str) -> StoredSystem | None:
    for directory in _SHARED:
        if key not in _FINDINGS and (file := directory / key).exists():
            _FINDINGS[key] = StoredSystem(**orjson.loads(file.read_bytes()))
    return _FINDINGS.get(key)


def _store(key: str, system: StoredSystem) -> None:
    _FINDINGS[key] = system
    for directory in _SHARED:
        temporary = directory / f"{key}.{os.getpid()}"
        temporary.write_bytes(orjson.dumps(asdict(system)))
        temporary.rename(directory / key)


def _with_findings(
    config: SystemConfig, system: StoredSystem, _: StoredSystem | None
) -> StoredSystem:
    return replace(system, registration={**system.registration, "config": asdict(config)})
