"""Queries over HTTP that compound and multi-valued indexes answer, on every system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
import redis.asyncio

from mediator.base.errors import Conflict
from mediator.control.port import ChangeOptions
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import QueryClient, query_client
from tests.process.service import Service, field_on

Json = dict[str, Any]

SYSTEMS: Final = ("redis", "postgres", "mongo")
CREATED: Final = "2026-01-{:02}T00:00:00Z"
OBJECTS: Final[Mapping[str, Json]] = {
    f"o{i:02}": {
        "status": ("open", "paid", None)[i % 3],
        "created": CREATED.format(1 + i * 7 % 28),
        "tags": [("a", "b", "'")[(i + j) % 3] for j in range(i % 4)],
        "total": i,
    }
    for i in range(40)
}
UNCHANGED: Final[Mapping[str, str]] = {}
TAGS: Final = {"type": "list", "items": "string", "max_length": 10}


def orders(system: str, *, indexed: bool = True, names: Mapping[str, str] = UNCHANGED) -> Json:
    """Return the class, with or without its indexes, with renamed fields."""
    status, created, tags = (names.get(name, name) for name in ("status", "created", "tags"))
    fields = {
        status: {"type": "string"},
        created: {"type": "timestamp"},
        tags: {**TAGS, "index": indexed},
        "total": {"type": "integer"},
    }
    indexes = [{"fields": [status, created]}] if indexed else []
    return {"orders": {"system": system, "fields": fields, "indexes": indexes}}


def expected(query: Json) -> list[str]:
    """Return the ids that a query of this module should find, in its order."""

    def matches(values: Json, condition: Json) -> bool:
        [(operator, operands)] = condition.items()
        if operator == "and":
            return all(matches(values, operand) for operand in operands)
        value, constant = values[operands[0]], operands[1]
        if operator == "contains":
            return constant in value
        if operator == "eq":
            return bool(value == constant)
        return value is not None and bool(value >= constant)

    [(name, direction)] = query.get("order", [("id", "asc")])
    keys = [(v | {"id": i})[name] + i for i, v in OBJECTS.items() if matches(v, query["filter"])]
    return [key[-3:] for key in sorted(keys, reverse=direction == "desc")]


OPEN: Final = {"eq": ["status", "open"]}
HAS_A: Final = {"contains": ["tags", "a"]}
SINCE: Final = {"ge": ["created", CREATED.format(9)]}
QUERIES: Final[tuple[Json, ...]] = (
    {"filter": HAS_A},
    {"filter": {"contains": ["tags", "'"]}},
    {"filter": {"and": [HAS_A, {"contains": ["tags", "b"]}]}},
    {"filter": {"and": [OPEN, SINCE]}},
    {"filter": {"and": [OPEN, SINCE]}, "order": [["created", "desc"]]},
    {"filter": OPEN, "order": [["created", "asc"]]},
    {"filter": {"eq": ["status", None]}, "order": [["created", "desc"]]},
    {"filter": {"and": [OPEN, HAS_A]}, "order": [["created", "asc"]]},
)


async def check(client: QueryClient, query: Json) -> None:
    """Require the expected objects, page by page, through an index."""
    ids = expected(query)
    assert ids
    for limit in (4, 100):
        items = await client.all("orders", {**query, "limit": limit, "fields": []})
        assert [item["id"] for item in items] == ids
    body = {**query, "limit": 3, "explain": True, "count": "exact"}
    result = await client.query("orders", body)
    assert result["explain"]["access"] == "index"
    assert result["total"] == len(ids)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_indexes_answer_queries(mediator: Service, system: str) -> None:
    database = await mediator.put_schema(orders(system))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        for query in QUERIES:
            await check(client, query)


async def test_a_page_through_a_compound_index_moves_no_more_than_it_returns(
    mediator: Service,
) -> None:
    """Redis has the simplest search: it sends only what the index finds."""
    database = await mediator.put_schema(orders("redis"))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        order = {"order": [["created", "desc"]], "limit": 2, "explain": True}
        result = await client.query("orders", {"filter": {"and": [OPEN, SINCE]}, **order})
    explained = result["explain"]
    assert explained["index"] == ["status", "created"]
    assert (explained["residual"], explained["pushed"]["limit"]) == (None, True)
    assert explained["rows"]["moved"] <= explained["rows"]["returned"] + 1


@pytest.mark.parametrize("system", SYSTEMS)
async def test_added_indexes_cover_existing_objects_and_survive_renames(
    mediator: Service, system: str
) -> None:
    control = mediator.mediator.control
    database = await mediator.put_schema(orders(system, indexed=False))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        if system == "redis":
            assert_problem(await client.send("orders", {"filter": HAS_A}), 422, "needs-scan")
        await control.set_schema(database, {"classes": orders(system)})
        for query in QUERIES:
            await check(client, query)
        assert system != "redis" or await indexes_of(mediator, database)
        names = {"status": "state", "tags": "labels"}
        options = ChangeOptions(rename={"orders": names})
        await control.set_schema(
            database, {"classes": orders(system, names=names)}, options=options
        )
        await client.load("orders", {"o99": {"state": "new", "labels": ["z"]}})
        for condition in ({"eq": ["state", "new"]}, {"contains": ["labels", "z"]}):
            result = await client.query("orders", {"filter": condition, "explain": True})
            assert [item["id"] for item in result["items"]] == ["o99"]
            [(_, (name, _))] = condition.items()
            index = ["state", "created"] if name == "state" else ["labels"]
            explained = result["explain"]
            assert explained["access"] == "index"
            assert explained["index"] == (index if system == "redis" else None)
        order = {"order": [["created", "asc"]], "fields": []}
        result = await client.query("orders", {"filter": {"eq": ["state", "open"]}, **order})
        ids = [item["id"] for item in result["items"]]
        assert ids == expected({"filter": OPEN, "order": [("created", "asc")]})
        unindexed = orders(system, indexed=False, names=names)
        await control.set_schema(database, {"classes": unindexed})
        result = await client.query("orders", {"filter": {"eq": ["total", 3]}, "allow_scan": True})
        assert [item["id"] for item in result["items"]] == ["o03"]
    assert system != "redis" or await indexes_of(mediator, database) == []


async def indexes_of(mediator: Service, database: str) -> list[bytes]:
    """Return the keys of indexes of a database in Redis."""
    config = mediator.configs["redis"]
    async with redis.asyncio.Redis.from_url(config.url, protocol=2) as server:
        return [key async for key in server.scan_iter(f"*:{database}.*:i.*", count=1000)]


def split_class(*indexes: Json) -> Json:
    fields = {"one": field_on("redis", "integer"), "two": field_on("postgres", "integer")}
    return {"things": {"fields": fields, "indexes": list(indexes)}}


async def test_fields_of_a_compound_index_are_placed_together(mediator: Service) -> None:
    index = {"fields": ["one", "two"]}
    database = await mediator.put_schema(split_class(index))
    assert len(mediator.systems_of(database, "things")) == 1


async def test_an_index_over_two_systems_is_refused_at_its_location(mediator: Service) -> None:
    database = await mediator.put_schema(split_class())
    assert len(mediator.systems_of(database, "things")) == 2
    await mediator.create(database, "things", "a", one=1, two=2)
    with pytest.raises(Conflict) as refusal:
        await mediator.mediator.control.set_schema(
            database, {"classes": split_class({"fields": ["one", "two"]})}
        )
    [location] = refusal.value.locations
    assert location.pointer == "/classes/things/indexes/0/fields"
    assert "redis" in location.detail


@pytest.mark.parametrize("system", SYSTEMS)
async def test_joined_objects_are_found_by_their_elements(mediator: Service, system: str) -> None:
    classes = orders(system)
    parent = {"type": "reference", "to": "orders", "index": True}
    classes["orders"]["fields"]["parent"] = parent
    classes["orders"]["fields"]["marks"] = {**TAGS, "items": "integer", "index": True}
    database = await mediator.put_schema(classes)
    async with query_client(mediator, database) as client:
        parents = {"p": {"tags": ["a", "b"], "status": "open", "marks": [7]}, "q": {"tags": ["b"]}}
        await client.load("orders", parents)
        await client.load("orders", {f"c{i}": {"parent": "pq"[i % 2]} for i in range(6)})
        join = {"join": {"as": "of", "reference": "parent"}, "fields": [], "allow_scan": True}
        for condition in (
            {"contains": ["of.tags", "a"]},
            {"contains": ["of.marks", 7]},
            {"and": [{"eq": ["of.status", "open"]}, {"not": {"exists": "of.created"}}]},
        ):
            items = (await client.query("orders", {"filter": condition, **join}))["items"]
            assert [item["id"] for item in items] == ["c0", "c2", "c4"]
