"""`GET /v1/{database}/openapi.json`: a contract that is current, confirmed cheaply, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.api.openapi.database_document import database_document
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.schema.types import FieldType
from tests.process.caching.newspaper import NEWS, OPTIONS, Newspaper, assert_problem, newspaper
from tests.process.data.loop_steps import count_steps
from tests.process.data.memory_plane import routing_model
from tests.process.operation.asgi_driver import send_raw

MAX_CALLS_OF_A_REFUSAL, MAX_CALLS_OF_A_BUILD = 2_000, 50_000
"""In one step of the event loop: of a refused request, and of one that builds a document of 5,000
fields. The whole build takes several times as many; periodic tasks of other services, in the same
loop, take fewer."""


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper(replace(OPTIONS, compresses=False)) as opened:
        yield opened


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The databases whose documents are built."""
    names: list[str] = []

    def record(database: str, classes: Any) -> dict[str, Any]:
        names.append(database)
        return database_document(database, classes)

    monkeypatch.setattr("app.api.database_documents.database_document", record)
    return names


async def test_the_classes_of_the_database_are_described(paper: Newspaper) -> None:
    answer = await paper.client.get("openapi.json")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-cache"
    document = answer.json()
    assert document["openapi"] == "3.1.0"
    assert {"/v1/news/articles/{id}", "/v1/news/locked", "/v1/news/batch"} <= set(document["paths"])
    head = await paper.client.head("openapi.json")
    assert (head.headers["etag"], head.content) == (answer.headers["etag"], b"")


async def test_a_document_is_built_once_and_confirmed(paper: Newspaper, built: list[str]) -> None:
    answers = await asyncio.gather(*[paper.client.get("openapi.json") for _ in range(5)])
    [tag] = {answer.headers["etag"] for answer in answers}
    same = await paper.client.get("openapi.json", headers={"if-none-match": tag})
    assert (same.status_code, same.headers["etag"], same.content) == (304, tag, b"")
    assert built == ["news"]
    refused = await paper.client.get("openapi.json", headers={"if-match": '"other"'})
    assert_problem(refused, 412, "precondition-failed")


async def test_a_change_of_the_schema_shows_at_once(paper: Newspaper) -> None:
    before = await paper.client.get("openapi.json")
    letters = ClassSchema("letters", {"text": Field("text", FieldType.STRING)})
    schema = replace(NEWS, classes={**NEWS.classes, "letters": letters})
    paper.plane.model = routing_model(2, schema)
    after = await paper.client.get(
        "openapi.json", headers={"if-none-match": before.headers["etag"]}
    )
    assert after.status_code == 200
    assert "letters" in after.json()["components"]["schemas"]


async def test_some_classes_are_chosen(paper: Newspaper) -> None:
    document = (await paper.client.get("openapi.json?class=locked")).json()
    assert [tag["name"] for tag in document["tags"]] == ["locked"]
    assert "articles" not in str(document)
    assert_problem(await paper.client.get("openapi.json?class=none"), 404, "not-found")
    assert_problem(await paper.client.get("openapi.json?class=a b"), 404, "not-found")
    assert_problem(await paper.client.get("openapi.json?classes=a"), 400, "invalid", "classes")
    absent = await paper.client.get("http://test/v1/none/openapi.json")
    assert_problem(absent, 404, "not-found")


def large(classes: int) -> Schema:
    fields = {f"f{i}": Field(f"f{i}", FieldType.INTEGER, index=True) for i in range(500)}
    return Schema("large", {f"c{i}": ClassSchema(f"c{i}", fields) for i in range(classes)})


async def test_a_document_has_a_bound_and_does_not_hold_the_event_loop(paper: Newspaper) -> None:
    paper.plane.model = routing_model(2, large(11))
    path = "http://test/v1/large/openapi.json"
    assert_problem(await paper.client.get(path), 400, "invalid", "class")
    query = b"class=" + ",".join(f"c{i}" for i in range(10)).encode()
    with count_steps() as steps:  # without httpx, which looks for a missing module at each request
        answer = await send_raw(paper.app, "GET", b"/v1/large/openapi.json", query=query)
    assert answer.status == 200
    assert steps.max_calls < MAX_CALLS_OF_A_BUILD


async def test_many_names_are_not_looked_up_one_by_one(paper: Newspaper) -> None:
    query = b"class=" + ",".join(f"c{i}" for i in range(8_000)).encode()
    maxima = []
    for _ in range(5):  # in most of them no periodic task of another service is counted
        with count_steps() as steps:
            refused = await send_raw(paper.app, "GET", b"/v1/news/openapi.json", query=query)
        assert (refused.status, refused.json()["type"]) == (404, "/problems/not-found")
        maxima.append(steps.max_calls)
    assert min(maxima) < MAX_CALLS_OF_A_REFUSAL


async def test_the_cache_of_documents_is_bounded(
    paper: Newspaper, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len((await paper.client.get("openapi.json")).content)
    monkeypatch.setattr("app.api.database_documents._MAX_CACHED_BYTES", size + 1)
    for _ in range(2):
        await paper.client.get("openapi.json")
        await paper.client.get("openapi.json?class=locked")
    assert len(built) == 4
