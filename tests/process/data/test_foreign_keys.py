"""Foreign keys over the data API, on every store: referenced objects exist, and stay."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.data.test_unique import client_of
from tests.process.service import Service, field_on
from tests.process.transactions.open_writes import all_over

SYSTEMS: Final = ("redis", "postgres", "mongo")
OTHER: Final = {"redis": "postgres", "postgres": "mongo", "mongo": "redis"}
ACTIONS: Final = ("refuse", "cascade", "nullify")


def refers(system: str, to: str, on_delete: str, **members: Any) -> dict[str, Any]:
    members = {"to": to, "on_delete": on_delete, "index": True, **members}
    return field_on(system, "reference", **members)


def classes(system: str) -> dict[str, Any]:
    """Return authors with articles for each delete action, and comments on cascaded articles."""
    other = OTHER[system]
    articles = {
        action: {"fields": {"author": refers(system, "authors", action), "title": field_on(system)}}
        for action in ACTIONS
    }
    split = {"author": refers(system, "authors", "nullify", group="a"), "n": field_on(other)}
    return {
        "authors": {"fields": {"name": field_on(other), "hits": field_on(other, "integer")}},
        **articles,
        "comments": {"fields": {"on": refers(other, "cascade", "cascade")}},
        "likes": {"fields": {"of": refers(other, "comments", "refuse"), "n": field_on(system)}},
        "split": {"fields": split},
        "tree": {"fields": {"parent": refers(system, "tree", "refuse")}},
        "ring": {"fields": {"parent": refers(other, "ring", "cascade")}},
    }


@pytest.fixture(scope="module", params=SYSTEMS)
async def http(mediator: Service, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with client_of(mediator, classes(request.param)) as client:
        yield client


async def put(http: httpx.AsyncClient, path: str, **members: Any) -> None:
    answer = await http.put(path, json=members)
    assert answer.is_success, answer.text


async def get_object(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(path)
    return None if answer.status_code == 404 else answer.json()


def assert_dangling(answer: httpx.Response, pointer: str = "/author") -> None:
    assert_problem(answer, 409, "dangling-reference", pointer)


async def patch(http: httpx.AsyncClient, path: str, type_: str, body: Any) -> httpx.Response:
    return await http.patch(path, json=body, headers={"content-type": type_})


async def test_every_way_to_refer_to_nothing_is_refused(http: httpx.AsyncClient) -> None:
    await put(http, "authors/ways", name="n")
    for name in ("refuse", "split"):
        await put(http, f"{name}/w", author="ways")
        before = await get_object(http, f"{name}/w")
        step = {"op": "replace", "path": "/author", "value": "none"}
        for answer in (
            await http.put(f"{name}/w", json={"author": "none"}),
            await http.put(f"{name}/new", json={"author": "none"}),
            await http.post(name, json={"id": "new", "author": "none"}),
            await patch(http, f"{name}/w", MERGE, {"author": "none"}),
            await patch(http, f"{name}/w", UPDATE, {"author": {"set": "none"}}),
            await patch(http, f"{name}/w", JSON_PATCH, [step]),
        ):
            assert_dangling(answer)
        assert await get_object(http, f"{name}/w") == before
        assert await get_object(http, f"{name}/new") is None


async def test_every_way_to_refer_to_an_object(http: httpx.AsyncClient) -> None:
    await put(http, "authors/one", name="n")
    await put(http, "authors/two", name="n")
    for name in ("refuse", "split"):
        created = await http.post(name, json={"author": "one"})
        assert created.status_code == 201
        path = f"{name}/{created.json()['id']}"
        preference = {"prefer": "return=representation"}
        merged = await http.patch(
            path, json={"author": "two"}, headers={"content-type": MERGE, **preference}
        )
        assert merged.json()["author"] == "two"
        step = {"op": "replace", "path": "/author", "value": "one"}
        assert (await patch(http, path, JSON_PATCH, [step])).is_success
        assert (await get_object(http, path))["author"] == "one"
        assert (await patch(http, path, MERGE, {"author": None})).is_success
        assert (await http.put(path, json={})).is_success
        assert (await http.delete(path)).status_code == 204


async def test_referenced_objects_are_not_deleted(http: httpx.AsyncClient) -> None:
    await put(http, "authors/ada", name="Ada")
    for n in range(7):
        await put(http, f"refuse/r{n}", author="ada", title="t")
    answer = await http.delete("authors/ada")
    document = assert_problem(answer, 409, "still-referenced")
    [reference] = document["references"]
    sample = reference.pop("sample")
    assert reference == {"class": "refuse", "field": "author", "count": 7, "more": False}
    assert len(sample) == 5 < len({*sample, "r0", "r1", "r2", "r3", "r4", "r5", "r6"})
    assert await get_object(http, "authors/ada")
    for n in range(7):
        assert (await http.delete(f"refuse/r{n}")).status_code == 204
    assert (await http.delete("authors/ada")).status_code == 204
    assert (await http.delete("authors/ada")).status_code == 404


async def test_references_become_null(http: httpx.AsyncClient) -> None:
    await put(http, "authors/bob", name="Bob")
    await put(http, "nullify/n1", author="bob", title="t")
    await put(http, "split/n1", author="bob", n="m")
    assert (await http.delete("authors/bob")).status_code == 204
    assert await get_object(http, "nullify/n1") == {"id": "n1", "author": None, "title": "t"}
    assert await get_object(http, "split/n1") == {"id": "n1", "author": None, "n": "m"}


async def test_deletions_cascade_across_classes(http: httpx.AsyncClient) -> None:
    await put(http, "authors/eve", name="Eve")
    await put(http, "cascade/c1", author="eve")
    await put(http, "cascade/c2", author="eve")
    for n in range(4):
        await put(http, f"comments/k{n}", on=f"c{1 + n % 2}")
    await put(http, "likes/l", of="k3")
    document = assert_problem(await http.delete("authors/eve"), 409, "still-referenced")
    assert document["references"][0]["class"] == "likes"
    assert await get_object(http, "comments/k0")
    await put(http, "likes/l", n="x")
    assert (await http.delete("authors/eve")).status_code == 204
    for path in ("cascade/c1", "cascade/c2", *(f"comments/k{n}" for n in range(4))):
        assert await get_object(http, path) is None
    assert await get_object(http, "likes/l")


async def test_objects_that_refer_to_themselves_and_in_circles(http: httpx.AsyncClient) -> None:
    for name in ("tree", "ring"):
        await put(http, f"{name}/a")
        await put(http, f"{name}/b", parent="a")
        await put(http, f"{name}/a", parent="b")
        await put(http, f"{name}/own")
        await put(http, f"{name}/own", parent="own")
        assert (await http.delete(f"{name}/own")).status_code == 204
    assert_problem(await http.delete("tree/a"), 409, "still-referenced")
    both = [{"op": "delete", "class": "tree", "id": id_} for id_ in ("a", "b")]
    assert (await http.post("transactions", json={"operations": both})).is_success
    assert (await http.delete("ring/a")).status_code == 204
    assert await get_object(http, "ring/b") is None


async def test_too_many_are_refused_and_deleted_by_a_condition(http: httpx.AsyncClient) -> None:
    await put(http, "authors/many", name="n")
    lines = "".join(f'{{"id": "m{n:03}", "author": "many"}}\n' for n in range(100))
    for name in ("cascade", "refuse", "nullify"):
        answer = await http.post(
            f"{name}/import", content=lines, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.json()["imported"] == 100, answer.text
    for method, name in (("DELETE", "cascade"), ("PATCH", "nullify")):
        document = assert_problem(await http.delete("authors/many"), 409, "still-referenced")
        assert "More than 100 objects" in document["detail"]
        [first] = re.findall(rf"{method} (/v1/\S+\?author=many)", document["detail"])
        assert document["references"][0]["class"] == name
        body: dict[str, Any] = {} if method == "DELETE" else {"json": {"author": None}}
        response = await http.request(method, f"http://test{first}", **body)
        assert response.json()["written"] == 100
    await put(http, "refuse/m100", author="many")
    document = assert_problem(await http.delete("authors/many"), 409, "still-referenced")
    assert [(reference["count"], reference["more"]) for reference in document["references"]] == [
        (100, True)
    ]
    assert (await http.delete("refuse?author=many")).json()["written"] == 101
    assert (await http.delete("authors/many")).status_code == 204


async def test_batches_and_transactions(mediator: Service, http: httpx.AsyncClient) -> None:
    author = {"op": "create", "class": "authors", "id": "tx", "body": {"name": "n"}}
    creation = {"op": "create", "class": "refuse", "id": "tx", "body": {"author": "tx"}}
    [refused] = (await http.post("batch", json={"operations": [creation]})).json()
    assert refused["problem"]["type"] == "/problems/dangling-reference"
    both = await http.post("transactions", json={"operations": [creation, author]})
    assert both.is_success, both.text
    deletion = {"op": "delete", "class": "authors", "id": "tx"}
    [refused] = (await http.post("batch", json={"operations": [deletion]})).json()
    assert refused["problem"]["type"] == "/problems/still-referenced"
    answer = await http.post("transactions", json={"operations": [deletion]})
    assert_problem(answer, 409, "still-referenced")
    other = {"op": "update", "class": "refuse", "id": "tx", "body": {"title": {"set": "t"}}}
    answer = await http.post("transactions", json={"operations": [deletion, other]})
    assert_problem(answer, 409, "still-referenced")
    change = {"op": "update", "class": "refuse", "id": "tx", "body": {"author": {"set": "tx"}}}
    answer = await http.post("transactions", json={"operations": [deletion, change]})
    assert_dangling(answer)
    article = {"op": "delete", "class": "refuse", "id": "tx"}
    assert (await http.post("transactions", json={"operations": [deletion, article]})).is_success
    assert (await http.post("transactions", json={"operations": [creation, author]})).is_success
    release = {"op": "update", "class": "refuse", "id": "tx", "body": {"author": {"unset": True}}}
    assert (await http.post("transactions", json={"operations": [deletion, release]})).is_success
    assert await get_object(http, "refuse/tx") == {"id": "tx"}
    await all_over(mediator)


async def test_a_retry_gets_the_first_answer(http: httpx.AsyncClient) -> None:
    await put(http, "authors/key", name="n")
    key = {"idempotency-key": '"k-1"'}
    first = await http.post("cascade", json={"author": "key"}, headers=key)
    repeated = await http.post("cascade", json={"author": "key"}, headers=key)
    assert (first.status_code, repeated.json()) == (201, first.json())
    key = {"idempotency-key": '"k-2"'}
    for _ in range(2):
        assert (await http.delete("authors/key", headers=key)).status_code == 204
    assert await get_object(http, f"cascade/{first.json()['id']}") is None
