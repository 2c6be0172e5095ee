"""Results of queries while write leases of their class are cached: what releases them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.settings.main import CacheSettings
from mediator.stores.port import SystemConfig
from sketch.protocol.port import Partition
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper, cacheable, paper_on, wait_for_listeners
from tests.process.service import unique


@pytest.mark.usefixtures("long_leases")
async def test_a_result_is_not_cacheable_while_leases_of_its_class_are_cached(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    fresh: Paper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing ends the leases here: this replica ignores notifications of readers."""
    paper = fresh
    monkeypatch.setattr(paper.caches.leases, "release_class", _keep_leases)
    word, id_ = unique("w"), unique("n")
    for text in ("a", "b"):
        await paper.http.put(f"notes/{id_}", json={"text": text})
    query, settings = f"notes?text={word}", CacheSettings()
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings, paper) as other:
        assert not cacheable(await other.http.get(query))
        await paper.http.put(f"notes/{id_}", json={"text": word})
        assert not cacheable(await other.http.get(query))
        await paper.release_leases()
        assert cacheable(await other.http.get(query))
        await paper.http.put(f"notes/{id_}", json={"text": "c"})
        assert (await paper.filter()).contains(f"notes//text={word}")
        assert (await other.http.get(query)).json()["items"] == []


@pytest.mark.usefixtures("long_leases")
async def test_a_query_at_another_replica_releases_idle_leases(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    fresh: Paper,
) -> None:
    paper, settings, id_ = fresh, CacheSettings(), unique("n")
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings, paper) as other:
        await wait_for_listeners(paper, 2)
        for text in ("a", "b"):
            await paper.http.put(f"notes/{id_}", json={"text": text})
        assert not cacheable(await other.http.get("notes?text=b"))

        async def is_cacheable() -> bool:
            return cacheable(await other.http.get("notes?text=b"))

        await eventually(is_cacheable)


async def _keep_leases(_partition: Partition) -> None:
    """Release nothing."""


@pytest.mark.usefixtures("long_leases")
async def test_a_query_at_the_same_replica_releases_leases_at_once(fresh: Paper) -> None:
    paper = fresh
    id_ = unique("n")
    for text in ("a", "b"):
        await paper.http.put(f"notes/{id_}", json={"text": text})
    assert cacheable(await paper.http.get("notes?text=b"))
    await paper.http.put(f"notes/{id_}", json={"text": "c"})
    assert (await paper.filter()).contains("notes//text=b")
    assert not paper.caches.leases.tokens
