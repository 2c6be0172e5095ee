"""Worlds of both server sketches."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import SketchLimits
from tests.process.sketch.server_sketches import LIMITS, Make
from tests.process.sketch.sketches import PARTITION, SHAPE, World, memory_world, redis_world


@pytest.fixture(params=["memory", "redis"])
async def make(request: pytest.FixtureRequest, redis_config: SystemConfig) -> AsyncIterator[Make]:
    """A factory of worlds, whose partition exists unless `created` is false."""
    worlds: list[World] = []

    async def make_world(
        limits: SketchLimits = LIMITS, *, created: bool = True, shape: FilterShape = SHAPE
    ) -> World:
        if request.param == "memory":
            world = await memory_world(limits, shape)
        else:
            world = await redis_world(redis_config.url, limits, shape)
        worlds.append(world)
        if created:
            await world.sketch.create(PARTITION)
        return world

    yield make_world
    for world in worlds:
        await world.close()


@pytest.fixture
async def world(make: Make) -> World:
    return await make()
