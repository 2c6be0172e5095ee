"""Queries of incomplete or changing objects, over HTTP and real stores."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mediator.base.errors import OutcomeUnknown
from mediator.model.operations import Delete
from mediator.stores.port import StoreUnavailable
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import query_client
from tests.process.service import Service, field_on, unique

Json = dict[str, Any]


async def create_class(mediator: Service, *systems: str) -> str:
    """Create a class with a text on the first system and an integer on the second."""
    text, number = field_on(systems[0]), field_on(systems[1], "integer", index=True, group="n")
    reference = field_on(systems[0], "reference", to="things")
    fields = {"text": text, "number": number, "next": reference}
    return await mediator.put_schema({"things": {"fields": fields}})


async def test_a_parsed_query_is_parsed_afresh_after_a_schema_change(
    mediator: Service,
) -> None:
    fields = {"text": field_on("postgres"), "number": field_on("postgres", "integer")}
    database = await mediator.put_schema({"things": {"fields": fields}})
    await mediator.create(database, "things", "a", text="x", number=2)
    query = {"filter": {"gt": ["number", 1]}, "allow_scan": True}
    async with query_client(mediator, database) as client:
        for _ in range(2):
            page = await client.query("things", query)
            assert [item["id"] for item in page["items"]] == ["a"]
        text_fields = {"text": fields["text"], "number": field_on("postgres")}
        await mediator.mediator.control.delete_schema(database)
        classes = {"classes": {"things": {"fields": text_fields}}}
        await mediator.mediator.control.set_schema(database, classes)
        assert_problem(await client.send("things", query), 400, "invalid", "/filter/gt/1")


SPLITS = [("postgres", "redis"), ("redis", "mongo"), ("mongo", "postgres")]


@pytest.mark.parametrize("systems", SPLITS, ids="+".join)
async def test_null_missing_and_dangling(mediator: Service, systems: tuple[str, str]) -> None:
    database = await create_class(mediator, *systems)
    rows: Mapping[str, Json] = {
        "a": {"text": "x", "number": 2, "next": "b"},
        "b": {"text": None, "number": None},
        "c": {"next": "nowhere"},
        "d": {"text": "x", "number": 2**62 + 1, "next": None},
        "e": {"number": -1, "next": "c"},
    }
    async with query_client(mediator, database) as client:
        await client.load("things", rows)

        async def ids(query: Json) -> list[str]:
            items = await client.all("things", {"limit": 2, "allow_scan": True, **query})
            return [item["id"] for item in items]

        assert await ids({"order": ["number"]}) == ["c", "b", "e", "a", "d"]
        assert await ids({"order": [["number", "desc"]]}) == ["d", "a", "e", "b", "c"]
        assert await ids({"order": ["text", ["number", "desc"]]}) == ["e", "c", "b", "d", "a"]
        assert await ids({"filter": {"ne": ["number", 2]}}) == ["b", "c", "d", "e"]
        assert await ids({"filter": {"not": {"exists": "number"}}}) == ["c"]
        either = {"or": [{"eq": ["text", "x"]}, {"lt": ["number", 0]}]}
        assert await ids({"filter": either}) == ["a", "d", "e"]
        joined = {"limit": 10, "join": {"as": "that", "reference": "next", "fields": ["number"]}}
        items = await client.all("things", joined)
        assert [item["that"] for item in items] == [
            {"id": "b", "number": None},
            None,
            None,
            None,
            {"id": "c"},
        ]
        aggregate = {"group": ["text"], "compute": {"n": {"count": "number"}}}
        result = await client.query("things", {"aggregate": aggregate, "allow_scan": True})
        assert result["items"] == [{"n": 1}, {"text": None, "n": 0}, {"text": "x", "n": 2}]


@pytest.mark.parametrize("systems", SPLITS[:2], ids="+".join)
async def test_objects_older_than_a_group_on_another_system(
    mediator: Service, systems: tuple[str, str]
) -> None:
    first, second = systems
    database = await mediator.put_schema({"things": {"fields": {"text": field_on(first)}}})
    for id_ in ("old", "older"):
        await mediator.create(database, "things", id_, text=id_)
    number = field_on(second, "integer", index=True, group="n")
    fields = {"text": field_on(first), "number": number}
    await mediator.mediator.control.set_schema(
        database, {"classes": {"things": {"fields": fields}}}
    )
    assert set(mediator.systems_of(database, "things")) == set(systems)
    for value in (1, 2):
        await mediator.create(database, "things", f"new{value}", text="t", number=value)
    await mediator.create(database, "things", "none", text="t")
    async with query_client(mediator, database) as client:

        async def ids(**query: Any) -> list[str]:
            items = await client.all("things", {"limit": 2, "allow_scan": True, **query})
            return [item["id"] for item in items]

        assert await ids(order=[["number", "desc"]]) == ["new2", "new1", "older", "old", "none"]
        assert await ids(order=["number"]) == ["none", "old", "older", "new1", "new2"]
        assert await ids(fields=["number"]) == ["new1", "new2", "none", "old", "older"]
        assert await ids(filter={"not": {"gt": ["number", 1]}}) == ["new1", "none", "old", "older"]
        assert await ids(filter={"gt": ["number", 1]}, fields=["text"]) == ["new2"]
        counts = await client.query(
            "things",
            {
                "aggregate": {"group": ["number"], "compute": {"n": {"count": "*"}}},
                "allow_scan": True,
            },
        )
        assert counts["items"] == [{"n": 3}, {"number": 1, "n": 1}, {"number": 2, "n": 1}]


async def test_a_half_deleted_object_is_not_found(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await create_class(mediator, "postgres", "redis")
    data = mediator.mediator.data
    for id_ in ("gone", "here"):
        await mediator.create(database, "things", id_, text="t", number=1)

    async def fail(*_: object) -> Any:
        raise StoreUnavailable("connection refused")

    stores = {name: mediator.mediator.systems.get(name).store for name in ("postgres", "redis")}
    monkeypatch.setattr(stores["redis"], "write", fail)
    with pytest.raises(OutcomeUnknown):
        await data.write(Delete(database, "things", "gone", unique()))
    fragments = data.model.databases[database].classes["things"].fragments
    object_counts = {f.system: await stores[f.system].count(f) for f in fragments}
    assert object_counts == {"postgres": 1, "redis": 2}
    async with query_client(mediator, database) as client:
        body = {"filter": {"eq": ["number", 1]}}
        assert [o["id"] for o in (await client.query("things", body))["items"]] == ["here"]


async def test_queries_while_objects_change(mediator: Service) -> None:
    """Every returned object satisfies the filter, whatever is written meanwhile."""
    database = await create_class(mediator, "postgres", "redis")
    async with query_client(mediator, database) as client:
        rows = {f"o{n}": {"text": "even", "number": 0} for n in range(20)}
        await client.load("things", rows)
        finished = asyncio.Event()

        async def change() -> None:
            for step in range(12):
                text = "odd" if step % 2 else "even"
                changed_rows = {id_: {"text": text, "number": step % 2} for id_ in rows}
                await client.load("things", changed_rows)
            finished.set()

        writer = asyncio.create_task(change())
        body = {"filter": {"and": [{"eq": ["text", "even"]}, {"eq": ["number", 0]}]}}
        while not finished.is_set():
            for item in (await client.query("things", body))["items"]:
                assert (item["text"], item["number"]) == ("even", 0)
        await writer
