"""Layouts in both server sketches, and what schema changes do to cached answers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.coherence.layouts import Layouts
from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient, Source
from sketch.protocol.keys import key_of_query
from sketch.protocol.port import Partition, SketchLimits, SketchUnavailable
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper
from tests.process.service import field_on, unique
from tests.process.sketch.sketches import PARTITION, World, memory_world, redis_world

LIMITS = SketchLimits(longest_ttl_s=100.0, margin_s=5.0, lease_s=30.0)
A, Q = "articles/1#text", key_of_query("articles", "title=q")


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, redis_config: SystemConfig) -> AsyncIterator[World]:
    if request.param == "memory":
        made = await memory_world(LIMITS)
    else:
        made = await redis_world(redis_config.url, LIMITS)
    await made.sketch.create(PARTITION)
    yield made
    await made.close()


async def is_lost(world: World) -> bool:
    return (await world.sketch.snapshot([PARTITION])).revalidate_all


async def test_a_layout_is_put_in_the_place_of_the_one_that_was_known(world: World) -> None:
    assert await world.sketch.layout(PARTITION) == ""
    assert await world.sketch.adopt(PARTITION, "", "ä")
    assert await world.sketch.layout(PARTITION) == "ä"
    assert not await world.sketch.adopt(PARTITION, "", "two", invalidate=True)
    assert await world.sketch.layout(PARTITION) == "ä"
    assert not await is_lost(world)


async def test_a_part_begins_anew_with_a_layout_that_does_not_cover_its_copies(
    world: World,
) -> None:
    await world.sketch.adopt(PARTITION, "", "one", schema="1")
    await world.sketch.report_read(PARTITION, [A], 10.0)
    before = (await world.sketch.snapshot([PARTITION])).generation
    assert await world.sketch.adopt(PARTITION, "one", "two", invalidate=True, schema="2")
    after = await world.sketch.snapshot([PARTITION])
    assert after.revalidate_all
    assert after.generation != before
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0
    await world.sketch.invalidate(PARTITION)
    assert await world.sketch.layout(PARTITION) == "two"


async def test_copies_of_an_unknown_layout_are_doubted(world: World) -> None:
    await world.sketch.report_read(PARTITION, [A], 10.0)
    assert await world.sketch.adopt(PARTITION, "", "one")
    assert await is_lost(world)


async def test_a_sketch_that_was_lost_knows_no_layout(world: World) -> None:
    """The last one may be among what was lost, and copies were made since."""
    await world.sketch.adopt(PARTITION, "", "one", schema="1")
    await world.lose(everything=False)
    assert await world.sketch.layout(PARTITION) == ""
    assert not (await world.sketch.report_query(PARTITION, Q, 10.0, "1")).adopted
    assert await world.sketch.adopt(PARTITION, "", "two", schema="2")


async def test_queries_are_registered_under_the_adopted_schema_only(world: World) -> None:
    await world.sketch.adopt(PARTITION, "", "one", schema="1")
    assert (await world.sketch.report_query(PARTITION, Q, 10.0, "1")).ttl_us == 10_000_000
    for schema in ("", "2", "0"):
        grant = await world.sketch.report_query(PARTITION, Q, 10.0, schema)
        assert (grant.ttl_us, grant.adopted) == (0, False)
    await world.sketch.adopt(PARTITION, "one", "two")
    assert not (await world.sketch.report_query(PARTITION, Q, 10.0, "1")).adopted
    await world.sketch.adopt(PARTITION, "two", "three", schema="2")
    assert (await world.sketch.report_query(PARTITION, Q, 10.0, "2")).adopted


TEXT = field_on("postgres", index=True)
FIELDS: dict[str, Any] = {"text": TEXT, "mood": field_on("postgres")}
MOVED: dict[str, Any] = {"text": TEXT, "mood": field_on("postgres", group="mood")}
OWN: dict[str, Any] = {**FIELDS, "tone": field_on("postgres", group="tone")}
MORE: dict[str, Any] = {**FIELDS, "tone": field_on("postgres")}


@pytest.fixture
async def walls(paper: Paper) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a database of one class, whose fields are in one group."""
    database = unique("db")
    await paper.caches.sketch.create(Partition(database, "walls"))
    await lay(paper, database, FIELDS)
    base = f"http://test/v1/{database}/"
    transport = httpx.ASGITransport(paper.api)
    async with httpx.AsyncClient(transport=transport, base_url=base) as http:
        await http.put("walls/w", json={"text": "one", "mood": "good"})
        yield http


async def lay(
    paper: Paper, database: str, fields: dict[str, Any], visibility: str = "public"
) -> None:
    """Set the schema, as another replica would that dies before it tells the sketch."""
    walls = {"cache": {"visibility": visibility, "max_ttl_s": 60}, "fields": fields}
    await paper.running.mediator.control.set_schema(database, {"classes": {"walls": walls}})


def database_of(walls: httpx.AsyncClient) -> str:
    return walls.base_url.path.split("/")[2]


async def doubted(walls: httpx.AsyncClient) -> bool:
    told = await walls.get("sketch", headers={"accept": "application/json"})
    return bool(told.json()["revalidate_all"])


async def write_tone(walls: httpx.AsyncClient) -> None:
    answer = await walls.put("walls/w?fields=tone", json={"tone": "sharp"})
    assert answer.is_success, answer.text


async def test_whole_objects_are_revalidated_when_there_is_another_group(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    assert "portolan-expires" in (await walls.get("walls/w")).headers
    await lay(paper, database_of(walls), OWN)
    await write_tone(walls)
    assert await doubted(walls)
    assert "portolan-expires" not in (await walls.get("walls/w")).headers


async def test_what_was_not_there_is_revalidated_when_its_field_changes_its_group(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    """The groups of fields change while a class is empty; answers that said so live on."""
    await walls.delete("walls/w")
    missing = await walls.get("walls/x?fields=mood")
    assert missing.status_code == 404
    assert "portolan-expires" in missing.headers
    await lay(paper, database_of(walls), MOVED)
    assert (await walls.put("walls/x", json={"text": "t", "mood": "m"})).status_code == 201
    assert await doubted(walls)


@pytest.mark.parametrize("visibility", ["private", "none"])
async def test_what_every_cache_could_keep_is_doubted_once_it_is_not_public(
    paper: Paper, walls: httpx.AsyncClient, visibility: str
) -> None:
    assert "portolan-expires" in (await walls.get("walls/w")).headers
    await lay(paper, database_of(walls), FIELDS, visibility)
    await walls.put("walls/x", json={"text": "t"})
    assert await doubted(walls)


async def test_without_the_new_layout_they_would_be_served(
    paper: Paper, walls: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left_out(self: Layouts, partition: Partition, _: Any) -> None: ...

    assert "portolan-expires" in (await walls.get("walls/w")).headers
    monkeypatch.setattr(Layouts, "announce", left_out)
    await lay(paper, database_of(walls), OWN)
    await write_tone(walls)
    snapshot = await paper.caches.sketch.snapshot([Partition(database_of(walls), "walls")])
    assert not any(snapshot.bits), "a copy reported as #main is not found by #tone"


async def test_a_further_field_of_a_group_costs_nothing(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    await walls.get("walls/w")
    await lay(paper, database_of(walls), MORE)
    assert "portolan-expires" in (await walls.get("walls/w")).headers
    assert not await doubted(walls)


async def test_a_client_of_the_old_map_sees_what_is_written_under_the_new_one(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    transport = httpx.ASGITransport(paper.api)
    async with CoherentClient("http://test", database_of(walls), transport=transport) as own:

        async def from_its_own_cache() -> bool:
            return (await own.get("walls", "w")).source is Source.OWN

        await eventually(from_its_own_cache)
        await lay(paper, database_of(walls), OWN)
        await write_tone(walls)
        await own.refresh_filter()
        whole = (await own.get("walls", "w")).value
        assert whole == {"id": "w", "text": "one", "mood": "good", "tone": "sharp"}


async def test_registrations_do_not_survive_a_change_of_the_schema(
    paper: Paper, walls: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the death of the replica that takes them back: the next one finds it undone."""
    assert "portolan-expires" in (await walls.get("walls?text=one")).headers
    partition = Partition(database_of(walls), "walls")
    queries = paper.caches.guard.queries
    await lay(paper, database_of(walls), MORE)

    async def killed(_: Partition) -> None:
        raise SketchUnavailable("killed")

    with monkeypatch.context() as patched:
        patched.setattr(queries, "invalidate_all", killed)
        assert "portolan-expires" not in (await walls.get("walls?text=one")).headers
        for schema in ("1", "2"):
            late = await paper.caches.sketch.report_query(
                partition, "walls//text=two", 10.0, schema
            )
            assert (late.ttl_us, late.adopted) == (0, False)
    assert "portolan-expires" in (await walls.get("walls?text=two")).headers
    registered = (await paper.caches.sketch.registrations(partition, 0)).numbers
    assert set(registered) == {"walls//text=two"}
    assert any((await paper.caches.sketch.snapshot([partition])).bits), (
        "copies of the old are covered"
    )


async def test_a_sketch_that_knows_another_schema_is_told_again(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    """A replica that was late has adopted an older schema, and died."""
    partition = Partition(database_of(walls), "walls")
    assert "portolan-expires" in (await walls.get("walls?text=one")).headers
    told = await paper.caches.sketch.layout(partition)
    late = told.replace('"schema":"1"', '"schema":"0"')
    assert await paper.caches.sketch.adopt(partition, told, late, schema="0")
    assert "portolan-expires" not in (await walls.get("walls?text=one")).headers
    assert "portolan-expires" in (await walls.get("walls?text=one")).headers
    assert await paper.caches.sketch.layout(partition) == told


async def test_copies_of_a_class_that_is_no_more_are_doubted(
    paper: Paper, walls: httpx.AsyncClient
) -> None:
    await walls.get("walls/w")
    await paper.caches.guard.invalidate_class(database_of(walls), "walls")
    assert await doubted(walls)
