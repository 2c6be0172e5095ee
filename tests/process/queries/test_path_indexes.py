"""Queries over HTTP by paths within documents and maps, on the systems that index them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mediator.base.errors import DataWouldMove, Unplaceable
from mediator.control.port import ChangeOptions
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import QueryClient, query_client
from tests.process.service import Service

Json = dict[str, Any]

SYSTEMS: Final = ("postgres", "mongo")
CITIES: Final = ("Ulm", "Bonn", 7, None, ["Ulm"], {"name": "Ulm"})
OBJECTS: Final[dict[str, Json]] = {
    f"o{i:02}": {
        "address": {"city": CITIES[i % 6], "geo": {"lat": i / 2, "$where": "it's"}},
        "prices": {"eur": i % 5, "a b": i},
    }
    for i in range(30)
}
OBJECTS["o30"] = {"address": {"geo": [{"lat": 1.0}]}}
PATHS: Final = {"address": ["city", "geo.lat", "geo.$where"], "prices": ["eur"]}
QUERIES: Final[tuple[tuple[Json, list[int]], ...]] = (
    ({"eq": ["address.city", "Ulm"]}, [i for i in range(30) if i % 6 == 0]),
    ({"in": ["address.city", ["Bonn", "Köln"]]}, [i for i in range(30) if i % 6 == 1]),
    ({"eq": ["address.city", 7.0]}, [i for i in range(30) if i % 6 == 2]),
    ({"gt": ["address.city", "C"]}, [i for i in range(30) if i % 6 == 0]),
    ({"between": ["address.geo.lat", 1, 2.5]}, [2, 3, 4, 5]),
    ({"eq": ["address.geo.$where", "it's"]}, [*range(30)]),
    ({"eq": ["prices.eur", 3]}, [3, 8, 13, 18, 23, 28]),
    ({"and": [{"eq": ["prices.eur", 3]}, {"ge": ["prices.a b", 20]}]}, [23, 28]),
)


def orders(system: str | None, paths: dict[str, list[str]] = PATHS, **names: str) -> Json:
    types: dict[str, Json] = {
        "address": {"type": "document"},
        "prices": {"type": "map", "items": "integer"},
    }
    fields = {
        names.get(name, name): {**type_, "indexed_paths": paths.get(name, [])}
        for name, type_ in types.items()
    }
    return {"orders": {"fields": fields} | ({"system": system} if system else {})}


async def check(client: QueryClient) -> None:
    """Require the expected objects, page by page, through an index."""
    for filter_, numbers in QUERIES:
        items = await client.all("orders", {"filter": filter_, "limit": 4, "fields": []})
        assert [item["id"] for item in items] == [f"o{i:02}" for i in numbers]
        result = await client.query("orders", {"filter": filter_, "explain": True})
        assert result["explain"]["access"] == "index"


@pytest.mark.parametrize("system", SYSTEMS)
async def test_path_indexes_answer_queries(mediator: Service, system: str) -> None:
    database = await mediator.put_schema(orders(system))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        await check(client)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_added_path_indexes_cover_existing_objects_and_survive_renames(
    mediator: Service, system: str
) -> None:
    control = mediator.mediator.control
    database = await mediator.put_schema(orders(system, {}))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        city = {"filter": {"eq": ["address.city", "Ulm"]}, "explain": True}
        assert (await client.query("orders", city))["explain"]["access"] == "server scan"
        await control.set_schema(database, {"classes": orders(system)})
        await check(client)
        renamed = {"classes": orders(system, address="home")}
        options = ChangeOptions(rename={"orders": {"address": "home"}})
        await control.set_schema(database, renamed, options=options)
        city["filter"] = {"eq": ["home.city", "Bonn"]}
        result = await client.query("orders", city)
        assert result["explain"]["access"] == "index"
        assert [item["id"] for item in result["items"]] == ["o01", "o07", "o13", "o19", "o25"]


async def test_fields_with_indexed_paths_are_not_placed_on_redis(mediator: Service) -> None:
    database = await mediator.put_schema(orders(None))
    assert set(mediator.systems_of(database, "orders")) <= set(SYSTEMS)
    with pytest.raises(Unplaceable) as refusal:
        await mediator.put_schema(orders("redis"))
    reason = "indexes no paths within documents and maps, as orders.address has"
    assert reason in str(refusal.value) + str(refusal.value.extra)


async def test_a_path_of_objects_on_redis_is_proposed_and_not_indexed_there(
    mediator: Service,
) -> None:
    database = await mediator.put_schema(orders("redis", {}))
    async with query_client(mediator, database) as client:
        await client.load("orders", OBJECTS)
        response = await client.send("orders", {"filter": {"eq": ["address.city", "Ulm"]}})
        problem = assert_problem(response, 422, "needs-scan")
        assert problem["indexes"] == [["address.city"]]
    control = mediator.mediator.control
    with pytest.raises(Unplaceable, match="indexes no paths"):
        await control.set_schema(database, {"classes": orders("redis")})
    with pytest.raises(DataWouldMove):
        await control.set_schema(database, {"classes": orders("postgres")})
