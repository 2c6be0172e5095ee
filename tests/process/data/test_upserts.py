"""Upserts: patches that create an object that does not exist, on each store and over two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from app.api.submission import submit
from mediator.model.operations import Outcome, Update
from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.service import Service, field_on

SYSTEMS: Final = [
    ("redis", "redis"),
    ("postgres", "postgres"),
    ("mongo", "mongo"),
    ("postgres", "redis"),
    ("redis", "mongo"),
]


def classes(first: str, second: str) -> dict[str, Any]:
    fields = {
        "path": field_on(first, required=True),
        "hits": field_on(second, "integer", default=5, minimum=0, maximum=100, group="hits"),
        "tags": field_on(second, "list", items="string", group="hits"),
        "created": field_on(first, "timestamp", default="now"),
        "changed": field_on(first, "timestamp", updated=True, group="changed"),
    }
    return {"pages": {"fields": fields}}


@pytest.fixture(params=SYSTEMS, ids="-".join)
async def pages(
    request: pytest.FixtureRequest, mediator: Service
) -> AsyncIterator[httpx.AsyncClient]:
    database = await mediator.put_schema(classes(*request.param))
    app = DataApi(mediator.mediator.data, DataOptions(cursor_key=b"key"), lambda _: None)
    base = f"http://localhost/v1/{database}/pages/"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


def typed(type_: str, **headers: str) -> dict[str, str]:
    return {"content-type": type_, **headers}


PATCHES: Final[list[tuple[str, Any]]] = [
    (MERGE, {"path": "/a", "hits": None, "tags": ["x"]}),
    (UPDATE, {"path": {"set": "/a"}, "hits": {"inc": 2}, "tags": {"push": "x"}}),
    (
        JSON_PATCH,
        [
            {"op": "add", "path": "/path", "value": "/a"},
            {"op": "replace", "path": "/hits", "value": 9},
            {"op": "add", "path": "/tags", "value": ["x"]},
        ],
    ),
]
HITS: Final = {MERGE: 5, UPDATE: 7, JSON_PATCH: 9}
"""The hits after each patch; a creation gives a removed field its default."""


@pytest.mark.parametrize(("type_", "body"), PATCHES, ids=[type_ for type_, _ in PATCHES])
async def test_a_patch_is_applied_to_the_defaults_of_a_new_object(
    pages: httpx.AsyncClient, type_: str, body: Any
) -> None:
    missing = await pages.patch("a", headers=typed(type_), json=body)
    assert_problem(missing, 404, "not-found")
    created = await pages.patch("a?upsert=true", headers=typed(type_), json=body)
    assert created.status_code == 201, created.text
    stored = await pages.get("a")
    assert stored.headers["etag"] == created.headers["etag"]
    document = stored.json()
    assert created.json() == document
    assert (document["path"], document["tags"]) == ("/a", ["x"])
    assert document.get("hits") == HITS[type_]
    assert document["created"]
    assert document["changed"]


async def test_an_object_that_exists_is_patched(pages: httpx.AsyncClient) -> None:
    await pages.put("a", json={"path": "/a", "hits": 1})
    body = {"hits": {"inc": 1}}
    patched = await pages.patch("a?upsert=true", headers=typed(UPDATE), json=body)
    assert patched.status_code == 200
    assert patched.json()["hits"] == 2
    assert (await pages.get("a")).json()["path"] == "/a"


async def test_nothing_is_stored_if_the_object_would_be_invalid(pages: httpx.AsyncClient) -> None:
    for type_, body, pointer in (
        (MERGE, {"hits": 1}, "/path"),
        (UPDATE, {"hits": {"inc": 1}}, "/path"),
        (JSON_PATCH, [{"op": "replace", "path": "/hits", "value": 1}], "/path"),
    ):
        answer = await pages.patch("a?upsert=true", headers=typed(type_), json=body)
        assert_problem(answer, 400, "invalid", pointer)
    for amount, reason in ((96, "above"), (-6, "below")):
        operators = {"path": {"set": "/a"}, "hits": {"inc": amount}}
        answer = await pages.patch("a?upsert=true", headers=typed(UPDATE), json=operators)
        assert (
            reason
            in assert_problem(answer, 409, "operator-refused", "/hits")["errors"][0]["detail"]
        )
    assert (await pages.get("a")).status_code == 404


@pytest.mark.usefixtures("patient")
async def test_concurrent_upserts_of_one_object_lose_no_patch(
    pages: httpx.AsyncClient,
) -> None:
    body = {"path": {"set": "/a"}, "hits": {"inc": 1}}
    requests = [pages.patch("a?upsert=true", headers=typed(UPDATE), json=body) for _ in range(20)]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*requests))
    assert statuses == [200] * 19 + [201]
    assert (await pages.get("a")).json()["hits"] == 25


async def test_an_object_that_is_created_meanwhile_is_patched(
    pages: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_first(plane: Any, planned: Any) -> Outcome:
        if not isinstance(planned.operation, Update):
            await pages.put("a", json={"path": "/other", "hits": 50})
        return await submit(plane, planned)

    monkeypatch.setattr("app.api.upserts.submit", create_first)
    body = {"path": {"set": "/a"}, "hits": {"inc": 1}}
    answer = await pages.patch("a?upsert=true", headers=typed(UPDATE), json=body)
    assert (answer.status_code, answer.json()["hits"]) == (200, 51)


async def test_a_retry_under_its_key_takes_effect_once(pages: httpx.AsyncClient) -> None:
    body = {"path": {"set": "/a"}, "hits": {"inc": 1}}
    headers = typed(UPDATE, **{"idempotency-key": "once"})
    first = await pages.patch("a?upsert=true", headers=headers, json=body)
    repeated = await pages.patch("a?upsert=true", headers=headers, json=body)
    assert (first.status_code, repeated.status_code) == (201, 201)
    assert repeated.headers["idempotency-replayed"] == "true"
    assert (repeated.json(), repeated.headers["etag"]) == (first.json(), first.headers["etag"])
    assert (await pages.get("a")).json()["hits"] == 6
    # Under another key an object that exists is patched, and a retry of that does nothing.
    headers = typed(UPDATE, **{"idempotency-key": "twice"})
    for _ in range(2):
        await pages.patch("a?upsert=true", headers=headers, json=body)
    assert (await pages.get("a")).json()["hits"] == 7


@pytest.mark.parametrize(("type_", "body"), PATCHES, ids=[type_ for type_, _ in PATCHES])
async def test_a_retry_of_a_creation_gets_the_first_answer(
    pages: httpx.AsyncClient, type_: str, body: Any
) -> None:
    headers = typed(type_, **{"idempotency-key": "once"})
    first = await pages.patch("a?upsert=true", headers=headers, json=body)
    assert first.status_code == 201, first.text
    for meanwhile in ("PUT", "DELETE"):
        await pages.request(meanwhile, "a", json={"path": "/b"} if meanwhile == "PUT" else None)
        repeated = await pages.patch("a?upsert=true", headers=headers, json=body)
        assert repeated.status_code == 201, repeated.text
        assert repeated.headers["idempotency-replayed"] == "true"
        assert (repeated.json(), repeated.headers["etag"]) == (first.json(), first.headers["etag"])
    assert (await pages.get("a")).status_code == 404


async def test_incompatible_parameters_are_named(pages: httpx.AsyncClient) -> None:
    for query, headers, pointer in (
        ("upsert=yes", {}, "upsert"),
        ("upsert=true&fields=hits", {}, "fields"),
        ("upsert=true", {"if-match": '"x"'}, "upsert"),
        ("upsert=true", {"if-none-match": "*"}, "upsert"),
        ("upsert=true&upsert=true", {}, "upsert"),
    ):
        body = {"path": "/a"}
        answer = await pages.patch(f"a?{query}", headers=typed(MERGE, **headers), json=body)
        assert_problem(answer, 400, "invalid", pointer)
    assert_problem(await pages.put("a?upsert=true", json={"path": "/a"}), 400, "invalid", "upsert")
    assert (await pages.get("a")).status_code == 404
