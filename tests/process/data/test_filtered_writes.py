"""Writes to all objects that meet conditions: on each store, over two, and with other writers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from app.api import filtered_writes
from app.api.options import DataOptions
from app.api.router import DataApi
from app.http.negotiation import UPDATE
from mediator.base.errors import MediatorError, Unavailable
from mediator.data_plane.port import DataPlane
from tests.process.data.interposed_plane import interposed
from tests.process.service import Service, field_on

OPERATORS: Final = {"content-type": UPDATE}
ON_ONE: Final = [("redis", "redis"), ("postgres", "postgres"), ("mongo", "mongo")]
ON_TWO: Final = [("redis", "mongo"), ("postgres", "redis")]


def classes(first: str, second: str) -> dict[str, Any]:
    return {
        "products": {
            "fields": {
                "price": field_on(first, "integer", index=True, group="main"),
                "colour": field_on(first, group="main"),
                "stock": field_on(second, "integer", default=1, minimum=0, group="stock"),
            }
        }
    }


@asynccontextmanager
async def api(plane: DataPlane, database: str) -> AsyncIterator[httpx.AsyncClient]:
    app = DataApi(plane, DataOptions(cursor_key=b"key"), lambda _: None)
    base = f"http://localhost/v1/{database}/"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


@pytest.fixture
async def shop(
    request: pytest.FixtureRequest, mediator: Service
) -> AsyncIterator[httpx.AsyncClient]:
    """Ten products with the prices 0 to 9."""
    database = await mediator.put_schema(classes(*getattr(request, "param", ON_ONE[1])))
    for number in range(10):
        await mediator.create(database, "products", f"p{number}", price=number, stock=number % 2)
    async with api(mediator.mediator.data, database) as client:
        yield client


async def list_products(shop: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    items = (await shop.get("products")).json()["items"]
    return {item["id"]: item for item in items}


def counts(answer: httpx.Response) -> tuple[int, int, int]:
    assert answer.status_code == 200, answer.text
    summary = answer.json()
    return summary["matched"], summary["written"], summary["failed"]


@pytest.mark.parametrize("shop", [*ON_ONE, *ON_TWO], indirect=True, ids="-".join)
async def test_objects_that_meet_the_conditions_are_written_and_no_others(
    shop: httpx.AsyncClient,
) -> None:
    dry = await shop.patch("products?price.lt=4&dry_run=true", json={"colour": "red"})
    assert counts(dry) == (4, 0, 0)
    assert dry.json()["sample"] == ["p0", "p1", "p2", "p3"]
    assert not any("colour" in item for item in (await list_products(shop)).values())
    assert counts(await shop.patch("products?price.lt=4", json={"colour": "red"})) == (4, 4, 0)
    coloured = {
        id_ for id_, item in (await list_products(shop)).items() if item.get("colour") == "red"
    }
    assert coloured == {"p0", "p1", "p2", "p3"}

    # Half of them have no stock, and it may not fall below zero.
    sale = {"stock": {"inc": -1}}
    sold = await shop.patch("products?price.lt=4", json=sale, headers=OPERATORS)
    assert counts(sold) == (4, 2, 2)
    assert [problem["id"] for problem in sold.json()["problems"]] == ["p0", "p2"]
    assert sold.json()["problems"][0]["errors"][0]["pointer"] == "/stock"

    assert counts(await shop.delete("products?price.between=2,7")) == (6, 6, 0)
    assert [*await list_products(shop)] == ["p0", "p1", "p8", "p9"]
    assert counts(await shop.delete("products?all=true")) == (4, 4, 0)
    assert await list_products(shop) == {}


async def test_a_request_that_runs_out_of_time_names_where_to_resume(
    shop: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtered_writes, "WORK_S", 0.0)
    monkeypatch.setattr(filtered_writes, "CHUNK", 3)
    requests, after = 0, ""
    while True:
        path = f"products?price.ge=1{after}"
        answer = await shop.patch(path, json={"stock": {"inc": 1}}, headers=OPERATORS)
        requests += 1
        if answer.json()["next"] is None:
            break
        after = f"&after={answer.json()['next']}"
    assert requests == 3
    stocks = {id_: item["stock"] for id_, item in (await list_products(shop)).items()}
    assert stocks == {f"p{n}": n % 2 + bool(n) for n in range(10)}


async def test_a_repeated_request_operates_on_each_object_once(shop: httpx.AsyncClient) -> None:
    headers = {**OPERATORS, "idempotency-key": "raise"}
    for after in ("", "", "&after=p4"):
        path = f"products?price.ge=0{after}"
        answer = await shop.patch(path, json={"stock": {"inc": 1}}, headers=headers)
        assert answer.json()["failed"] == 0
    stocks = [item["stock"] for item in (await list_products(shop)).values()]
    assert stocks == [n % 2 + 1 for n in range(10)]
    other = await shop.patch("products?price=1", json={"stock": {"inc": 5}}, headers=headers)
    assert other.json()["problems"][0]["type"] == "/problems/idempotency-key-reused"


async def test_the_same_body_of_another_media_type_is_another_request(mediator: Service) -> None:
    fields = {"price": field_on("redis", "integer", index=True), "info": {"type": "document"}}
    database = await mediator.put_schema({"products": {"fields": fields}})
    await mediator.create(database, "products", "p", price=1)
    body, key = {"info": {"set": {"a": 1}}}, {"idempotency-key": "info"}
    async with api(mediator.mediator.data, database) as client:
        first = await client.patch("products?price=1", json=body, headers={**OPERATORS, **key})
        assert counts(first) == (1, 1, 0)
        other = await client.patch("products?price=1", json=body, headers=key)
        assert counts(other) == (1, 0, 1)
        assert other.json()["problems"][0]["type"] == "/problems/idempotency-key-reused"
        assert (await client.get("products/p")).json()["info"] == {"a": 1}


@pytest.mark.parametrize("shop", ON_ONE[:1], indirect=True, ids="-".join)
async def test_conditions_without_an_index_are_scanned_if_that_is_allowed(
    shop: httpx.AsyncClient,
) -> None:
    refused = await shop.delete("products?colour=red")
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/needs-scan")
    await shop.patch("products?price.in=3,5", json={"colour": "red"})
    assert counts(await shop.delete("products?colour=red&allow_scan=true")) == (2, 2, 0)


async def test_a_class_that_requires_if_match_is_written_by_the_versions_that_were_read(
    mediator: Service,
) -> None:
    fields = {"price": field_on("redis", "integer", index=True)}
    database = await mediator.put_schema({"strict": {"require_if_match": True, "fields": fields}})
    for number in range(3):
        await mediator.create(database, "strict", f"s{number}", price=number)
    async with api(mediator.mediator.data, database) as client:
        assert counts(await client.patch("strict?price.ge=1", json={"price": 5})) == (2, 2, 0)
        assert counts(await client.delete("strict?all=true")) == (3, 3, 0)


@pytest.mark.parametrize("shop", ON_ONE, indirect=True, ids="-".join)
async def test_objects_that_others_change_meanwhile_are_tested_again(
    shop: httpx.AsyncClient, mediator: Service
) -> None:
    """One no longer matches, one is deleted, and one still matches."""
    changes = [
        ("patch", "products/p1", {"price": 100}),
        ("delete", "products/p2", None),
        ("patch", "products/p3", {"price": 3, "colour": "blue"}),
    ]

    async def change() -> None:
        while changes:
            method, path, body = changes.pop()
            answer = await shop.request(method, path, json=body)
            assert answer.is_success, answer.text

    plane = interposed(mediator.mediator.data, change)
    async with api(plane, str(shop.base_url).split("/")[-2]) as client:
        answer = await client.patch("products?price.lt=5", json={"stock": 7})
    assert counts(answer) == (3, 3, 0)
    stocks = {id_: item["stock"] for id_, item in (await list_products(shop)).items()}
    assert [id_ for id_, stock in stocks.items() if stock == 7] == ["p0", "p3", "p4"]


async def test_a_system_that_stops_answering_ends_the_request_with_its_progress(
    shop: httpx.AsyncClient, mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtered_writes, "CHUNK", 4)
    answers: list[list[MediatorError] | None] = [
        None,
        [Unavailable("It is away.", system="postgres")] * 4,
    ]

    async def fail() -> list[MediatorError] | None:
        return answers.pop(0)

    plane = interposed(mediator.mediator.data, fail)
    async with api(plane, str(shop.base_url).split("/")[-2]) as client:
        answer = await client.delete("products?price.ge=0")
    assert answer.status_code == 503
    assert (answer.json()["written"], answer.json()["next"]) == (4, "p3")


async def test_objects_are_counted_once_if_a_system_stops_answering_among_them(
    shop: httpx.AsyncClient, mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two objects of the second chunk are written; the chunk is retried under the same key."""
    monkeypatch.setattr(filtered_writes, "CHUNK", 4)
    answers: list[list[MediatorError]] = [[], [Unavailable("It is away.", system="postgres")] * 2]

    async def fail() -> list[MediatorError]:
        return answers.pop(0) if answers else []

    plane = interposed(mediator.mediator.data, fail)
    request: dict[str, Any] = {
        "json": {"stock": {"inc": 1}},
        "headers": {**OPERATORS, "idempotency-key": "once"},
    }
    async with api(plane, str(shop.base_url).split("/")[-2]) as client:
        first = await client.patch("products?price.ge=0", **request)
        retry = await client.patch("products?price.ge=0&after=p3", **request)
    problem = first.json()
    assert (first.status_code, problem["next"]) == (503, "p3")
    assert (problem["matched"], problem["written"], problem["failed"]) == (4, 4, 0)
    assert counts(retry) == (6, 6, 0)
    stocks = [item["stock"] for item in (await list_products(shop)).values()]
    assert stocks == [n % 2 + 1 for n in range(10)]


INVALID: Final = [
    ("", "all"),
    ("all=false", "all"),
    ("all=true&price=3", "all"),
    ("all=yes", "all"),
    ("price=3&dry_run=1", "dry_run"),
    ("price=3&dry_run=true&dry_run=true", "dry_run"),
    ("price=x", "price"),
    ("cost=3", "cost"),
    ("price=3&limit=5", "limit"),
    ("price=3&order=price", "order"),
    ("price=3&fields=price", "fields"),
    ("price=3&count=exact", "count"),
    ("price=3&explain=true", "explain"),
    ("price=3&after=%00", "after"),
]


async def test_parameters_that_are_wrong_are_named(shop: httpx.AsyncClient) -> None:
    for query, pointer in INVALID:
        answer = await shop.delete(f"products?{query}")
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid")
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert len(await list_products(shop)) == 10


async def test_a_body_that_is_wrong_is_refused_before_anything_is_written(
    shop: httpx.AsyncClient,
) -> None:
    for body, pointer in (({"price": "x"}, "/price"), ({"id": "q", "price": 1}, "/id")):
        answer = await shop.patch("products?price=77", json=body)
        assert answer.status_code == 400
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    conditional = await shop.patch(
        "products?price=1", json={"price": 2}, headers={"if-match": '"1"'}
    )
    assert conditional.status_code == 400
    assert (await shop.patch("products?price=1", content="x")).status_code == 415
