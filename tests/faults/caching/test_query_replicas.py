"""Two replicas in separate processes: one serves cached results, the other writes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient, Source
from tests.faults.service import Service
from tests.process.service import scratch_catalogue, scratch_systems, unique

CLASSES = {
    "notes": {
        "cache": {"visibility": "public"},
        "fields": {
            "text": {"type": "string", "index": True},
            "hits": {"type": "integer", "default": 0, "index": True},
        },
    }
}


@pytest.fixture
async def replicas(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[tuple[str, str, str]]:
    """The addresses of two services, and a database."""
    async with (
        scratch_catalogue(postgresql_config) as url,
        scratch_systems(redis_config, postgresql_config) as configs,
    ):
        one, two = (
            Service.on(configs, url, redis_config.url, relays="here", sketch_url=redis_config.url)
            for _ in range(2)
        )
        async with one.running():
            database = unique("db")
            await one.put_schema(database, CLASSES)
            async with two.running():
                yield one.data, two.data, database


async def test_a_write_by_one_replica_invalidates_results_cached_by_the_other(
    replicas: tuple[str, str, str],
) -> None:
    one, two, database = replicas
    async with (
        httpx.AsyncClient(base_url=f"{two}/v1/{database}/", timeout=60.0) as writer,
        CoherentClient(one, database, delta_s=60.0, timeout_s=60.0) as reader,
    ):
        query = {"text": "a", "order": "-hits"}
        for number in range(5):
            result = await reader.query("notes", query)
            assert len(result.items) == number
            cached = await reader.query("notes", query)
            assert cached.source is Source.OWN
            response = await writer.put(f"notes/{number}", json={"text": "a", "hits": number})
            assert response.status_code == 201, response.text
            await reader.refresh_filter()
        assert [item["id"] for item in (await reader.query("notes", query)).items] == list("43210")
        response = await writer.put("notes/0", json={"text": "a", "hits": 9})
        assert response.is_success
        await reader.refresh_filter()
        assert (await reader.query("notes", query)).items[0]["id"] == "0"
