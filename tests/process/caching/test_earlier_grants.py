"""After a loss a class is revalidated for the longest TTL that earlier settings allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from app.service.container import Container, build
from app.service.mediators import writing_mediator
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import highest
from mediator.catalogue.tables import secrets
from mediator.stores.port import SystemConfig
from sketch.protocol.port import Partition
from tests.process.service import scratch_catalogue, unique

LONG_S, MARGIN_S = 80_000.0, 5.0


@pytest.fixture
async def settings(
    postgresql_config: SystemConfig, tmp_path: Path
) -> AsyncIterator[MediatorSettings]:
    """Settings of a new installation without systems."""
    async with scratch_catalogue(postgresql_config) as url:
        yield MediatorSettings(catalogue_url=SecretStr(url), relays="here", data_dir=tmp_path)


def caching(redis_config: SystemConfig, max_ttl_s: float, sketch: str = "redis") -> CacheSettings:
    url = redis_config.url
    members = {"sketch": sketch, "sketch_url": url, "cache_max_ttl_s": max_ttl_s}
    return CacheSettings.model_validate({**members, "cache_margin_s": MARGIN_S})


@asynccontextmanager
async def serving(
    settings: MediatorSettings, cache_settings: CacheSettings
) -> AsyncIterator[Container]:
    container = await build(HttpSettings(), settings, cache_settings)
    try:
        yield container
    finally:
        await container.stop()


async def revalidation_s(container: Container, partition: Partition) -> float:
    """Return how long a whole class is revalidated from now on."""
    assert container.context.caches is not None
    (state,) = await container.context.caches.sketch.states([partition])
    return (state.revalidate_all_until_us - state.time_us) / 1_000_000


async def revalidation_after_loss_s(
    settings: MediatorSettings, cache_settings: CacheSettings
) -> float:
    """Return how long a new replica has a whole class revalidated after a loss.

    Each call uses a new class, so Redis knows as little of it as memory does.
    """
    async with serving(settings, cache_settings) as container:
        partition = Partition(unique("db"), "articles")
        await container.mediator.installation.guard.invalidate_class(*partition)
        return await revalidation_s(container, partition)


@pytest.mark.parametrize("sketch", ["memory", "redis"])
async def test_a_lower_maximum_ttl_does_not_shorten_the_revalidation_after_a_loss(
    settings: MediatorSettings, redis_config: SystemConfig, sketch: str
) -> None:
    longer, shorter = (caching(redis_config, max_ttl_s, sketch) for max_ttl_s in (LONG_S, 6.0))
    assert 6.0 < await revalidation_after_loss_s(settings, shorter) <= 6.0 + MARGIN_S
    for cache_settings in (longer, shorter, shorter):
        assert (
            LONG_S < await revalidation_after_loss_s(settings, cache_settings) <= LONG_S + MARGIN_S
        )


async def test_commands_that_write_know_earlier_settings(
    settings: MediatorSettings, redis_config: SystemConfig
) -> None:
    partition = Partition(unique("db"), "articles")
    async with serving(settings, caching(redis_config, LONG_S)):
        pass
    async with writing_mediator(settings, caching(redis_config, 6.0)) as mediator:
        await mediator.installation.guard.invalidate_class(*partition)
    async with serving(settings, caching(redis_config, 6.0)) as container:
        assert await revalidation_s(container, partition) > LONG_S - 600


async def test_the_highest_number_is_kept_and_no_other_text_counts(
    settings: MediatorSettings,
) -> None:
    catalogue = Catalogue(settings.required_catalogue_url)
    await catalogue.open()
    try:
        assert [await highest(catalogue, "a", n) for n in (5, 3, 9, 4)] == [5, 5, 9, 9]
        assert await highest(catalogue, "b", 1) == 1
        await catalogue.execute(update(secrets).values(value="soon"))
        assert [await highest(catalogue, "a", n) for n in (2, 1)] == [2, 2]
    finally:
        await catalogue.close()
