"""Layouts in both server sketches, and the effect of schema changes on cached answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.coherence.layouts import ClassLayouts
from mediator.control.port import ChangeOptions
from mediator.stores.port import SystemConfig
from sketch.client import CoherentClient, Source
from sketch.protocol.keys import key_of_query
from sketch.protocol.port import Partition, SketchLimits, SketchUnavailable
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper
from tests.process.service import field_on, unique
from tests.process.sketch.sketches import PARTITION, World, memory_world, redis_world

LIMITS = SketchLimits(max_ttl_s=100.0, margin_s=5.0, lease_s=30.0)
A, Q = "articles/1#text", key_of_query("articles", "title=q")


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, redis_config: SystemConfig) -> AsyncIterator[World]:
    if request.param == "memory":
        opened = await memory_world(LIMITS)
    else:
        opened = await redis_world(redis_config.url, LIMITS)
    await opened.sketch.create(PARTITION)
    yield opened
    await opened.close()


async def is_lost(world: World) -> bool:
    return (await world.sketch.snapshot([PARTITION])).revalidate_all


async def test_a_layout_is_adopted_only_if_the_known_one_is_current(world: World) -> None:
    assert await world.sketch.layout(PARTITION) == ""
    assert await world.sketch.adopt(PARTITION, "", "ä")
    assert await world.sketch.layout(PARTITION) == "ä"
    assert not await world.sketch.adopt(PARTITION, "", "two", invalidate=True)
    assert await world.sketch.layout(PARTITION) == "ä"
    assert not await is_lost(world)


async def test_a_partition_is_invalidated_if_its_layout_does_not_cover_its_copies(
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


async def test_copies_of_an_unknown_layout_are_revalidated(world: World) -> None:
    await world.sketch.report_read(PARTITION, [A], 10.0)
    assert await world.sketch.adopt(PARTITION, "", "one")
    assert await is_lost(world)


async def test_a_sketch_that_was_lost_knows_no_layout(world: World) -> None:
    """The last layout may be lost, and copies were stored since."""
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
NEW_GROUP: dict[str, Any] = {**FIELDS, "tone": field_on("postgres", group="tone")}
NEW_FIELD: dict[str, Any] = {**FIELDS, "tone": field_on("postgres")}


@pytest.fixture
async def client(paper: Paper) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a database of one class, whose fields are in one group."""
    database = unique("db")
    await paper.caches.sketch.create(Partition(database, "walls"))
    await set_schema(paper, database, FIELDS)
    base = f"http://test/v1/{database}/"
    transport = httpx.ASGITransport(paper.api)
    async with httpx.AsyncClient(transport=transport, base_url=base) as http:
        await http.put("walls/w", json={"text": "one", "mood": "good"})
        yield http


async def set_schema(
    paper: Paper, database: str, fields: dict[str, Any], visibility: str = "public"
) -> None:
    """Set the schema like a replica that is killed before it notifies the sketch."""
    schema = {"cache": {"visibility": visibility, "max_ttl_s": 60}, "fields": fields}
    await paper.running.mediator.control.set_schema(database, {"classes": {"walls": schema}})


def database_of(client: httpx.AsyncClient) -> str:
    return client.base_url.path.split("/")[2]


async def revalidates_all(client: httpx.AsyncClient) -> bool:
    answer = await client.get("sketch", headers={"accept": "application/json"})
    return bool(answer.json()["revalidate_all"])


async def write_tone(client: httpx.AsyncClient) -> None:
    answer = await client.put("walls/w?fields=tone", json={"tone": "sharp"})
    assert answer.is_success, answer.text


async def test_whole_objects_are_revalidated_when_a_group_is_added(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    assert "portolan-expires" in (await client.get("walls/w")).headers
    await set_schema(paper, database_of(client), NEW_GROUP)
    await write_tone(client)
    assert await revalidates_all(client)
    assert "portolan-expires" not in (await client.get("walls/w")).headers


async def test_cached_absence_is_revalidated_when_a_field_changes_its_group(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    """The groups of fields change while a class is empty; its cached answers stay fresh."""
    await client.delete("walls/w")
    missing = await client.get("walls/x?fields=mood")
    assert missing.status_code == 404
    assert "portolan-expires" in missing.headers
    await set_schema(paper, database_of(client), MOVED)
    assert (await client.put("walls/x", json={"text": "t", "mood": "m"})).status_code == 201
    assert await revalidates_all(client)


@pytest.mark.parametrize("visibility", ["private", "none"])
async def test_copies_of_a_class_that_is_no_longer_public_are_revalidated(
    paper: Paper, client: httpx.AsyncClient, visibility: str
) -> None:
    assert "portolan-expires" in (await client.get("walls/w")).headers
    await set_schema(paper, database_of(client), FIELDS, visibility)
    await client.put("walls/x", json={"text": "t"})
    assert await revalidates_all(client)


async def drop(paper: Paper, database: str, kind: str) -> None:
    """Drop a class or its database like a replica that is killed before it notifies the sketch."""
    control = paper.running.mediator.control
    if kind == "class":
        remaining = {"classes": {"doors": {"fields": FIELDS}}}
        await control.set_schema(
            database, remaining, options=ChangeOptions(drop=frozenset({"walls"}))
        )
    else:
        await control.delete_schema(database)


@pytest.mark.parametrize("dropped", ["class", "database"])
async def test_copies_of_a_dropped_class_are_revalidated_when_it_is_created_again(
    paper: Paper, client: httpx.AsyncClient, dropped: str
) -> None:
    """They are, although nobody notified the sketch of the drop, and its groups are the same."""
    assert "portolan-expires" in (await client.get("walls/w")).headers
    await drop(paper, database_of(client), dropped)
    await set_schema(paper, database_of(client), FIELDS)
    assert await revalidates_all(client), "before anyone reads or writes it"


@pytest.mark.parametrize("dropped", ["class", "database"])
async def test_copies_of_a_dropped_class_are_not_confirmed_when_it_is_created_again(
    paper: Paper, client: httpx.AsyncClient, dropped: str
) -> None:
    condition = {"if-none-match": (await client.get("walls/w")).headers["etag"]}

    async def without_the_store() -> bool:
        answer = await client.get("walls/w", headers=condition)
        return answer.status_code == 304 and "hit" in answer.headers["cache-status"]

    await eventually(without_the_store)
    await drop(paper, database_of(client), dropped)
    await set_schema(paper, database_of(client), FIELDS)
    assert (await client.get("walls/w", headers=condition)).status_code == 404


async def test_without_the_new_layout_stale_copies_would_be_served(
    paper: Paper, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def announce_nothing(self: ClassLayouts, partition: Partition, _: Any) -> None: ...

    assert "portolan-expires" in (await client.get("walls/w")).headers
    monkeypatch.setattr(ClassLayouts, "announce", announce_nothing)
    await set_schema(paper, database_of(client), NEW_GROUP)
    await write_tone(client)
    snapshot = await paper.caches.sketch.snapshot([Partition(database_of(client), "walls")])
    assert not any(snapshot.bits), "a copy reported as #main is not found by #tone"


async def test_a_new_field_of_a_group_invalidates_nothing(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    await client.get("walls/w")
    await set_schema(paper, database_of(client), NEW_FIELD)
    assert "portolan-expires" in (await client.get("walls/w")).headers
    assert not await revalidates_all(client)


async def test_a_client_of_the_old_map_sees_what_is_written_under_the_new_one(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    transport = httpx.ASGITransport(paper.api)
    async with CoherentClient("http://test", database_of(client), transport=transport) as reader:

        async def from_its_own_cache() -> bool:
            return (await reader.get("walls", "w")).source is Source.OWN

        await eventually(from_its_own_cache)
        await set_schema(paper, database_of(client), NEW_GROUP)
        await write_tone(client)
        await reader.refresh_filter()
        value = (await reader.get("walls", "w")).value
        assert value == {"id": "w", "text": "one", "mood": "good", "tone": "sharp"}


async def test_registrations_do_not_survive_a_change_of_the_schema(
    paper: Paper, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not even if the replica that invalidates them is killed: the next one does it."""
    assert "portolan-expires" in (await client.get("walls?text=one")).headers
    partition = Partition(database_of(client), "walls")
    queries = paper.caches.guard.queries
    await set_schema(paper, database_of(client), NEW_FIELD)

    async def fail(_: Partition) -> None:
        raise SketchUnavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(queries, "invalidate_all", fail)
        assert "portolan-expires" not in (await client.get("walls?text=one")).headers
        for schema in ("1", "2"):
            late = await paper.caches.sketch.report_query(
                partition, "walls//text=two", 10.0, schema
            )
            assert (late.ttl_us, late.adopted) == (0, False)
    assert "portolan-expires" in (await client.get("walls?text=two")).headers
    numbers = (await paper.caches.sketch.registrations(partition, 0)).numbers
    assert set(numbers) == {"walls//text=two"}
    assert any((await paper.caches.sketch.snapshot([partition])).bits), (
        "copies of old results are covered"
    )


async def test_a_sketch_that_knows_another_schema_is_notified_again(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    """A late replica has adopted an older schema, and was killed."""
    partition = Partition(database_of(client), "walls")
    assert "portolan-expires" in (await client.get("walls?text=one")).headers
    current = await paper.caches.sketch.layout(partition)
    late = current.replace('"schema":"1"', '"schema":"0"')
    assert await paper.caches.sketch.adopt(partition, current, late, schema="0")
    assert "portolan-expires" not in (await client.get("walls?text=one")).headers
    assert "portolan-expires" in (await client.get("walls?text=one")).headers
    assert await paper.caches.sketch.layout(partition) == current


async def test_copies_of_an_invalidated_class_are_revalidated(
    paper: Paper, client: httpx.AsyncClient
) -> None:
    await client.get("walls/w")
    await paper.caches.guard.invalidate_class(database_of(client), "walls")
    assert await revalidates_all(client)
