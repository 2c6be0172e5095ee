"""Mediators from settings: their options, and mediators for commands, without ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from pydantic import SecretStr

from app.coherence.caches import Caches, has_sketch, make_caches, sketch_limits
from app.settings.main import CacheSettings, MediatorSettings, MissingSetting, SystemSettings
from app.settings.systems_file import read_systems
from app.telemetry.log import log_observation
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import highest
from mediator.coordination.feed import Retention
from mediator.flows.http_hosts import HttpHosts
from mediator.flows.http_services import HttpServices
from mediator.options import MediatorOptions
from mediator.query.budget import Limits
from mediator.scaling.energy import Energy
from mediator.service import Mediator
from mediator.stores.kinds import make_store
from sketch.protocol.bounds import lifetime_us

__all__ = [
    "earlier_lifetime_s",
    "has_relay_process",
    "mediator_options",
    "reading_mediator",
    "secret_value",
    "writing_mediator",
]

_LIFETIME: Final = "sketch:lifetime_us"
"""The catalogue's key of the longest lifetime ever configured. A lost sketch has everything
revalidated until all forgotten copies have expired. In memory, or on an emptied Redis, it also
loses that time, and the current settings could be smaller than earlier ones."""


@asynccontextmanager
async def writing_mediator(
    settings: MediatorSettings, caching: CacheSettings
) -> AsyncIterator[Mediator]:
    """Run a mediator that keeps caches coherent, like the service, but serves no requests.

    Raises:
        MissingSetting: There is no catalogue, or the sketch is not shared.
        Unavailable: The catalogue does not answer.
    """
    if caching.sketch == "memory":
        raise MissingSetting("A sketch in memory is one process's own: set PORTOLAN_SKETCH=redis.")
    earlier_s = await earlier_lifetime_s(settings, caching)
    url = secret_value(settings.coordination_url)
    caches = make_caches(caching, url, earlier_lifetime_s=earlier_s)
    mediator = Mediator(mediator_options(settings, caches), make_store, [log_observation])
    async with AsyncExitStack() as stack:
        if caches is not None:
            stack.push_async_callback(caches.close)
        stack.push_async_callback(mediator.stop)
        await mediator.start()
        if caches is not None:
            stack.push_async_callback(caches.stop)
            caches.start(
                mediator.orphan_resolver, lambda: mediator.data.model, mediator.control.databases
            )
        yield mediator


@asynccontextmanager
async def reading_mediator(settings: MediatorSettings) -> AsyncIterator[Mediator]:
    """Open a read-only mediator, without background tasks, which does not migrate the catalogue.

    Raises:
        MissingSetting: There is no catalogue.
        Conflict: The catalogue has another version.
        Unavailable: The catalogue does not answer.
    """
    options = replace(mediator_options(settings), migrate=False)
    mediator = Mediator(options, make_store, [log_observation])
    try:
        await mediator.open()
        yield mediator
    finally:
        await mediator.stop()


def mediator_options(
    settings: MediatorSettings, caches: Caches | None = None, *, alone: bool = False
) -> MediatorOptions:
    """Return the options of a mediator; with `caches`, all its writes keep them coherent."""
    options = MediatorOptions(
        catalogue_url=settings.required_catalogue_url,
        migrate=settings.catalogue_migrate == "auto",
        coordination_url=secret_value(settings.coordination_url),
        systems=[system.registration() for system in _systems(settings)],
        proposal_margin=settings.proposal_margin,
        proposal_dwell_s=settings.proposal_dwell_s,
        retention=Retention(settings.feed_changes, settings.feed_hours * 3600),
        query_limits=Limits(
            rows=settings.query_rows, seconds=settings.query_seconds, bytes=settings.query_bytes
        ),
        energy=settings.energy or Energy(),
        flow_services=HttpServices(
            HttpHosts.of(settings.flow_hosts, private=settings.flow_private_addresses)
        ),
        alone=alone,
        relaying="elsewhere" if has_relay_process(settings) else "here",
    )
    if caches is None:
        return options
    return replace(options, guard=caches.guard, decorate_control=caches.coherent)


def _systems(settings: MediatorSettings) -> list[SystemSettings]:
    """Return the systems in settings and file; the file overrides settings of the same name."""
    by_name = {system.name: system for system in settings.systems}
    if settings.systems_file is not None:
        by_name |= {system.name: system for system in read_systems(settings.systems_file)}
    return list(by_name.values())


def has_relay_process(settings: MediatorSettings) -> bool:
    return settings.relays == "process" and settings.coordination_url is not None


def secret_value(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


async def earlier_lifetime_s(settings: MediatorSettings, caching: CacheSettings) -> float:
    """Return the longest freshness lifetime that any replica ever had in its settings, in seconds.

    Call it before the first copy is handed out, as it also records these settings. Without a sketch
    it does not read the catalogue.

    Raises:
        MissingSetting: There is no catalogue.
        CatalogueMismatch: This code cannot work with the catalogue's tables.
        Unavailable: The catalogue does not answer.
    """
    if not has_sketch(caching, is_coordinated=bool(settings.coordination_url)):
        return 0.0
    migrate = settings.catalogue_migrate == "auto"
    catalogue = Catalogue(settings.required_catalogue_url, migrate=migrate)
    try:
        await catalogue.open()
        current_us = lifetime_us(sketch_limits(caching))
        return await highest(catalogue, _LIFETIME, current_us) / 1_000_000
    finally:
        await catalogue.close()
