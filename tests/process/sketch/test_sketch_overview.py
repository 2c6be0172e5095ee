"""The operators' view of the sketch: the same for both kinds, and the route's report."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.coherence.overview import measured_false_positives
from app.telemetry.metrics import Metrics
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig
from sketch.filter.shape import false_positive_rate
from sketch.protocol.port import FilterSnapshot, SketchLimits, SketchPartitionState
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique
from tests.process.sketch.sketches import (
    PARTITION,
    SHAPE,
    World,
    bits_of,
    memory_world,
    redis_world,
)

LIMITS = SketchLimits(max_ttl_s=100.0, margin_s=5.0, lease_s=10.0, purge_repeat_s=30.0)
A, B, C = "articles/1#text", "articles/2#text", "articles/3#text"


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, redis_config: SystemConfig) -> AsyncIterator[World]:
    if request.param == "memory":
        opened: World = await memory_world(LIMITS, SHAPE)
    else:
        opened = await redis_world(redis_config.url, LIMITS, SHAPE)
    yield opened
    await opened.close()


async def state_of(world: World) -> SketchPartitionState:
    (state,) = await world.sketch.states([PARTITION])
    return state


async def test_both_sketches_report_their_state(world: World) -> None:
    await world.sketch.create(PARTITION)
    fresh = await state_of(world)
    assert (fresh.keys, fresh.bits_set, fresh.handed_out, fresh.pending) == (0, 0, 0, 0)
    assert (fresh.first_lease_us, fresh.first_purge_us, fresh.purges) == (None, None, 0)
    assert fresh.revalidate_all_until_us <= fresh.time_us
    await world.sketch.report_read(PARTITION, [A, B, C], 60.0)
    await world.sketch.begin(PARTITION, [A], "done")
    await world.sketch.end(PARTITION, "done", {A: 1})
    await world.sketch.begin(PARTITION, [B], "pending")
    await world.advance(1.0)
    state = await state_of(world)
    bits = bits_of([A, B], SHAPE)
    assert (state.keys, state.handed_out, state.pending) == (2, 3, 1)
    assert state.bits_set == int.from_bytes(bits).bit_count()
    assert state.first_lease_us is not None
    assert 0 < state.first_lease_us - state.time_us < 10_000_000
    assert (state.purges, state.purges_due) == (1, 1)
    assert state.first_purge_us is not None
    assert state.first_purge_us < state.time_us
    assert state.generation == fresh.generation
    assert state.revision > fresh.revision
    await world.sketch.end(PARTITION, "pending", {})
    (first, *_) = await world.sketch.take_purges([PARTITION], 10)
    await world.sketch.acknowledge_purges([first])
    acknowledged = await state_of(world)
    assert (acknowledged.pending, acknowledged.first_lease_us) == (0, None)
    assert (acknowledged.purges, acknowledged.purges_due) == (2, 0)


async def test_a_lost_partition_reports_until_when_it_recovers(world: World) -> None:
    state = await state_of(world)
    assert state.revalidate_all_until_us > state.uncacheable_until_us >= state.time_us


def test_the_measured_false_positive_rate_is_near_the_estimate() -> None:
    keys = [f"k{number}" for number in range(2_000)]
    snapshot = FilterSnapshot(SHAPE, bits_of(keys, SHAPE), 0, "0" * 32, 1)
    estimated = false_positive_rate(SHAPE.bits, SHAPE.hashes, len(keys))
    assert measured_false_positives(snapshot) == pytest.approx(estimated, rel=0.15)
    assert (
        measured_false_positives(FilterSnapshot(SHAPE, bits_of([], SHAPE), 0, "0" * 32, 1)) == 0.0
    )


async def overview(paper: Paper, query: str = "") -> httpx.Response:
    app = create_admin_app(
        paper.running.mediator.control, Metrics().registry, AdminContext(caches=paper.caches)
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
        return await admin.get(f"/admin/v1/sketch{query}")


async def test_the_route_describes_every_class(paper: Paper) -> None:
    id_ = unique("a")
    await paper.put(id_)
    await paper.get(id_)
    await paper.inc(id_)
    answer = await overview(paper, f"?database={paper.database}")
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    assert (report["kept_in"], report["purgers"]) == ("redis", [])
    items = {item["class"]: item for item in report["items"]}
    assert set(items) == {"articles", "notes", "secrets", "mortals"}
    articles = items["articles"]
    assert articles["filter"]["keys"] == 1
    assert articles["filter"]["fill"] == pytest.approx(4 / 116_800)
    assert articles["handed_out"] == 2
    assert articles["pending"] == {"writes": 0, "oldest_s": None, "first_lease_ends_in_s": None}
    assert articles["revalidate_all_for_s"] == 0
    assert articles["bytes"] > 1_000
    token = await paper.caches.guard.begin(paper.database, [CacheKey("articles", id_, "text")])
    pending = (await overview(paper)).json()["items"][0]["pending"]
    assert pending["writes"] == 1
    assert 0 <= pending["oldest_s"] <= 30.0 - pending["first_lease_ends_in_s"] + 0.001
    await paper.caches.guard.end(paper.database, token, {})


async def test_without_a_sketch_there_is_nothing_to_describe(paper: Paper) -> None:
    app = create_admin_app(paper.running.mediator.control, Metrics().registry)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
        answer = await admin.get("/admin/v1/sketch")
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"


async def test_gauges_show_existing_partitions_only(paper: Paper) -> None:
    metrics = Metrics()
    states = await paper.caches.sketch.states([paper.partition])
    metrics.measure_sketch(states)
    labels = {"database": paper.database, "class": "articles"}
    value = metrics.registry.get_sample_value
    assert value("portolan_sketch_keys", labels) == states[0].keys
    metrics.measure_sketch([])
    assert value("portolan_sketch_keys", labels) is None
