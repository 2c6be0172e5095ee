"""Mediators as settings describe them: their options, and mediators of commands, without ports."""

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
    "reading",
    "revealed",
    "writing",
]

_LIFETIME: Final = "sketch:lifetime_us"
"""A sketch that was lost has everything revalidated until no copy can be fresh that it has
forgotten. Where it forgets how long that is as well, in memory or on a Redis that was emptied, its
settings would say so, had nobody ever reduced them. So the catalogue remembers it, by this name."""


@asynccontextmanager
async def writing(settings: MediatorSettings, caching: CacheSettings) -> AsyncIterator[Mediator]:
    """Run a mediator that keeps caches coherent as the service does, and serves no requests.

    Raises:
        MissingSetting: There is no catalogue, or the sketch is not shared.
        Unavailable: The catalogue does not answer.
    """
    if caching.sketch == "memory":
        raise MissingSetting("A sketch in memory is one process's own: set PORTOLAN_SKETCH=redis.")
    earlier_s = await earlier_lifetime_s(settings, caching)
    url = revealed(settings.coordination_url)
    caches = make_caches(caching, url, earlier_lifetime_s=earlier_s)
    mediator = Mediator(mediator_options(settings, caches), make_store, [log_observation])
    async with AsyncExitStack() as rest:
        if caches is not None:
            rest.push_async_callback(caches.close)
        rest.push_async_callback(mediator.stop)
        await mediator.start()
        if caches is not None:
            rest.push_async_callback(caches.stop)
            caches.start(
                mediator.orphan_resolver, lambda: mediator.data.model, mediator.control.databases
            )
        yield mediator


@asynccontextmanager
async def reading(settings: MediatorSettings) -> AsyncIterator[Mediator]:
    """Open a mediator that only reads: it does nothing in the background, and upgrades nothing.

    Raises:
        MissingSetting: There is no catalogue.
        Conflict: The catalogue is of another version.
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
    """Return the options of a mediator that keeps caches coherent, whatever it writes."""
    options = MediatorOptions(
        catalogue_url=settings.required_catalogue_url,
        migrate=settings.catalogue_migrate == "auto",
        coordination_url=revealed(settings.coordination_url),
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
    """Return what settings and file name; of a system that both name, the file holds."""
    named = {system.name: system for system in settings.systems}
    if settings.systems_file is not None:
        named |= {system.name: system for system in read_systems(settings.systems_file)}
    return list(named.values())


def has_relay_process(settings: MediatorSettings) -> bool:
    return settings.relays == "process" and settings.coordination_url is not None


def revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


async def earlier_lifetime_s(settings: MediatorSettings, caching: CacheSettings) -> float:
    """Return for how long copies may be fresh that any replica was ever set to hand out (seconds).

    To be called before the first is handed out: it remembers these settings, too. Where none is,
    the catalogue is not asked.

    Raises:
        MissingSetting: There is no catalogue.
        CatalogueMismatch: This code cannot work with the tables there are.
        Unavailable: The catalogue does not answer.
    """
    if not has_sketch(caching, is_coordinated=bool(settings.coordination_url)):
        return 0.0
    migrate = settings.catalogue_migrate == "auto"
    catalogue = Catalogue(settings.required_catalogue_url, migrate=migrate)
    try:
        await catalogue.open()
        own_us = lifetime_us(sketch_limits(caching))
        return await highest(catalogue, _LIFETIME, own_us) / 1_000_000
    finally:
        await catalogue.close()
