"""Two replicas are restarted one after the other under load: no request fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.balancer import balancer
from benchmarks.harness.rolling_restarts import Load, roll, steady_load
from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.service import scratch_catalogue, scratch_systems, unique

CLASSES = {"counts": {"fields": {"n": {"type": "integer", "default": 0}}}}
DRAIN_S = "3"
"""Many times the time that the load needs to notice, even on a busy machine."""
PAUSE_S = 0.05
"""Between two requests of a client: the restarts take seconds, however many there are."""


@dataclass
class Restarted:
    """A replica, as the load knows it."""

    service: Service

    @property
    def data(self) -> str:
        return self.service.data

    @property
    def admin(self) -> str:
        return self.service.admin

    async def restart(self) -> None:
        await self.service.stop()
        await self.service.start()


async def test_no_request_fails_while_replicas_are_restarted_in_turn(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> None:
    load = await _roll(redis_config, postgresql_config)
    assert not load.failures
    assert load.answered > 100


async def _roll(redis: SystemConfig, postgres: SystemConfig) -> Load:
    async with (
        scratch_systems(redis, postgres) as configs,
        scratch_catalogue(postgres) as catalogue,
        _service(configs, catalogue, redis).running() as first,
        _service(configs, catalogue, redis).running() as second,
        balancer([first.data, second.data]) as url,
    ):
        database = unique("db")
        await first.put_schema(database, CLASSES)
        replicas = [Restarted(first), Restarted(second)]
        async with steady_load(replicas, url, database, PAUSE_S) as load:
            await roll(replicas, 2)
        assert await load.is_complete(url), "every acknowledged write took effect once"
        return load


def _service(configs: Sequence[SystemConfig], catalogue: str, redis: SystemConfig) -> Service:
    # A process of the relays would take longer to start than the service, which answers without it.
    return Service.on(configs, catalogue, redis.url, drain_s=DRAIN_S, relays="here")
