"""Transactions in the data API, over three real systems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.transactions.model import MAX_READS, MAX_WRITES
from tests.process.service import Service, field_on, unique

CLASSES = {
    "users": {"fields": {"credit": field_on("postgres", "integer", default=0)}},
    "carts": {"fields": {"total": field_on("redis", "integer", default=0)}},
    "notes": {
        "fields": {"text": field_on("mongo"), "stars": field_on("mongo", "integer", group="stars")}
    },
}


@pytest.fixture(scope="module")
async def client(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    database = await mediator.put_schema(CLASSES)
    api = DataApi(
        mediator.mediator.data,
        DataOptions(cursor_key=b"key"),
        lambda _: None,
        DataServices(transact=mediator.mediator.transactions.run),
    )
    transport = httpx.ASGITransport(app=api)
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield client


async def put(client: httpx.AsyncClient, path: str, **values: Any) -> str:
    response = await client.put(path, json=values)
    assert response.status_code in (200, 201), response.text
    return response.headers["etag"]


def read_entry(path: str, etag: str | None) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"class": class_name, "id": id_, "etag": etag}


def change(path: str, op: str, body: Any = None, **more: Any) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    operation = {"op": op, "class": class_name, "id": id_, **more}
    return operation if body is None else operation | {"body": body}


async def transact(
    client: httpx.AsyncClient, reads: Any = (), operations: Any = (), **headers: str
) -> httpx.Response:
    body = {"reads": list(reads), "operations": list(operations)}
    return await client.post("transactions", json=body, headers=headers)


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["type"]) == (status, f"/problems/{slug}"), document
    return document


async def test_reads_are_validated_and_everything_is_written(client: httpx.AsyncClient) -> None:
    user, cart, note = f"users/{unique()}", f"carts/{unique()}", f"notes/{unique()}"
    tag, absent = await put(client, user, credit=10), read_entry(cart, None)
    await put(client, note, text="a")
    operations = [
        change(user, "update", {"credit": {"inc": -4}}),
        change(cart, "put", {"total": 4}),
        change(note, "patch", {"text": "b"}),
    ]
    response = await transact(client, [read_entry(user, tag), absent], operations)
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    assert [result["status"] for result in results] == [200, 201, 200]
    assert [result["body"] for result in results] == [
        {"id": user.split("/")[1], "credit": 6},
        {"id": cart.split("/")[1], "total": 4},
        {"id": note.split("/")[1], "text": "b"},
    ]
    for path, result in zip((user, cart, note), results, strict=True):
        assert (await client.get(path)).headers["etag"] == result["etag"]
    stale = problem(
        await transact(client, [read_entry(user, tag), absent], operations),
        409,
        "transaction-aborted",
    )
    assert stale["changed"] == [
        {"class": path.split("/")[0], "id": path.split("/")[1]} for path in (user, cart)
    ]
    assert [location["pointer"] for location in stale["errors"]] == ["/reads/0", "/reads/1"]
    assert (await client.get(user)).json()["credit"] == 6


async def test_a_read_set_can_contain_projections(client: httpx.AsyncClient) -> None:
    note = f"notes/{unique()}"
    await put(client, note, text="a", stars=1)
    text = (await client.get(note, params={"fields": "text"})).headers["etag"]
    stars = (await client.get(note, params={"fields": "stars"})).headers["etag"]
    changed = await client.patch(note, json={"stars": 2}, headers={"content-type": MERGE})
    assert changed.status_code == 200
    assert (await transact(client, [read_entry(note, text)])).json() == {"results": []}
    problem(await transact(client, [read_entry(note, stars)]), 409, "transaction-aborted")


MERGE = "application/merge-patch+json"


async def test_a_failed_operation_is_reported_as_if_sent_alone(client: httpx.AsyncClient) -> None:
    user, cart, taken = f"users/{unique()}", f"carts/{unique()}", f"carts/{unique()}"
    tag = await put(client, user, credit=1)
    await put(client, taken, total=1)
    first = change(user, "update", {"credit": {"inc": 1}})
    for other, status, slug in (
        (change(cart, "patch", {"total": 1}), 404, "not-found"),
        (change(cart, "delete"), 404, "not-found"),
        (change(cart, "put", {"total": 1}, if_match=tag), 412, "precondition-failed"),
        (change(cart, "put", {"total": "many"}), 400, "invalid"),
        (change(cart, "get"), 400, "invalid"),
        (change(user, "delete"), 400, "invalid"),
        (change(taken, "create", {"total": 2}), 409, "already-exists"),
        ({"op": "put"}, 400, "invalid"),
    ):
        document = problem(await transact(client, (), [first, other]), status, slug)
        if status == 400:
            assert document["errors"][0]["pointer"].startswith("/operations/1"), document
    assert (await client.get(user)).json()["credit"] == 1


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"read": []},
        {"reads": {}},
        {"operations": {}},
        {"reads": [{"class": "users", "id": "a"}]},
        {"reads": [{"class": "users", "id": "a", "etag": 'W/"1"'}]},
        {"reads": [{"class": "users", "id": "a/b", "etag": None}]},
        {"reads": [{"class": 1, "id": "a", "etag": None}]},
        {"reads": [{"class": "users", "id": True, "etag": None}]},
        {"reads": [{"class": "users", "id": ["a"], "etag": None}]},
        {"reads": [{"class": "users", "id": "a", "etag": None}] * (MAX_READS + 1)},
        {"operations": [{}] * (MAX_WRITES + 1)},
    ],
)
async def test_invalid_transactions_are_refused(client: httpx.AsyncClient, body: Any) -> None:
    response = await client.post("transactions", json=body)
    problem(response, 400, "invalid")


async def test_objects_are_created_under_ids_of_the_server(client: httpx.AsyncClient) -> None:
    create = {"op": "create", "class": "carts", "body": {"total": 3}}
    [one, other] = (await transact(client, (), [create, create])).json()["results"]
    assert one["id"] != other["id"]
    for created in (one, other):
        assert created["status"] == 201
        assert (await client.get(f"carts/{created['id']}")).json()["total"] == 3


async def test_a_repeated_key_commits_once(client: httpx.AsyncClient) -> None:
    user, cart = f"users/{unique()}", f"carts/{unique()}"
    tag = await put(client, user, credit=1)
    await put(client, cart, total=1)
    operations = [
        change(user, "update", {"credit": {"inc": 1}}),
        change(cart, "update", {"total": {"inc": 1}}),
    ]
    headers = {"idempotency-key": unique()}
    first = await transact(client, [read_entry(user, tag)], operations, **headers)
    replayed = await transact(client, [read_entry(user, tag)], operations, **headers)
    assert (first.status_code, replayed.status_code) == (200, 200), replayed.text
    assert replayed.headers["idempotency-replayed"] == "true"
    for one, other in zip(first.json()["results"], replayed.json()["results"], strict=True):
        assert other.pop("replayed")
        assert one == other
    assert (await client.get(user)).json()["credit"] == 2
    problem(await transact(client, (), operations, **headers), 422, "idempotency-key-reused")


async def test_an_impossible_tag_is_refused_with_and_without_a_key(
    client: httpx.AsyncClient,
) -> None:
    user, cart = f"users/{unique()}", f"carts/{unique()}"
    await put(client, user, credit=1)
    await put(client, cart, total=1)
    operations = [
        change(user, "update", {"credit": {"inc": 1}}, if_match='"x"'),
        change(cart, "update", {"total": {"inc": 1}}),
    ]
    for headers in ({}, {"idempotency-key": unique()}):
        problem(await transact(client, (), operations, **headers), 412, "precondition-failed")
    assert (await client.get(cart)).json()["total"] == 1


async def test_without_a_mediator_there_is_no_such_route(mediator: Service) -> None:
    api = DataApi(mediator.mediator.data, DataOptions(cursor_key=b"key"), lambda _: None)
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/v1/d/") as bare:
        problem(await bare.post("transactions", json={}), 404, "route-not-found")
