"""Queries whose objects are large in total: pages end early, or the query is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from typing import Any, Final

import orjson
import pytest

from app.http.negotiation import UPDATE
from mediator.query.budget import Limits
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import QueryClient, query_client
from tests.process.service import Service, field_on

COUNT: Final = 230
TEXT: Final = "x" * 1_000
LIMITS: Final = Limits(seconds=120.0, bytes=40 * len(TEXT) + len(TEXT) // 2)
IDS: Final = [f"a{number:03}" for number in range(COUNT)]


@pytest.fixture(params=["redis", "postgres", "mongo", "postgres+redis"])
async def articles(
    mediator: Service, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[QueryClient]:
    """Articles of 1,000 characters, each with a reference to the next; a query can read 40."""
    first, *other_systems = request.param.split("+")
    fields = {
        "n": field_on(first, "integer", index=True, group="main"),
        "text": field_on(*other_systems or [first], group="main" if not other_systems else "text"),
        "that": field_on(first, "reference", to="articles", group="main"),
    }
    database = await mediator.put_schema({"articles": {"fields": fields}})
    monkeypatch.setattr(mediator.mediator.data, "limits", LIMITS)
    async with query_client(mediator, database) as client:
        next_ids = [*IDS[1:], IDS[0]]
        objects = {
            id_: {"n": number, "text": TEXT, "that": next_id}
            for number, (id_, next_id) in enumerate(zip(IDS, next_ids, strict=True))
        }
        await client.load("articles", objects)
        yield client


async def all_pages(client: QueryClient, **query: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    after: dict[str, Any] = {}
    while True:
        page = await client.query("articles", {"limit": 1_000, **query, **after})
        pages.append([item["id"] for item in page["items"]])
        if page["next"] is None:
            return pages
        after = {"after": page["next"]}


async def test_a_listing_of_large_objects_has_smaller_pages(articles: QueryClient) -> None:
    pages = await all_pages(articles)
    assert [*chain.from_iterable(pages)] == IDS
    assert len(pages) >= COUNT / 40
    assert all(30 <= len(page) <= 40 for page in pages[:-1])
    by_number = await all_pages(articles, order=["n"], allow_scan=True)
    assert [*chain.from_iterable(by_number)] == IDS
    assert len(await all_pages(articles, fields=["n"])) == 1


async def test_an_export_of_large_objects_is_complete(articles: QueryClient) -> None:
    response = await articles.get("articles/export")
    assert [orjson.loads(line)["id"] for line in response.content.splitlines()] == IDS


async def test_joined_objects_count_as_well(articles: QueryClient, request: Any) -> None:
    body = {"limit": 50, "fields": ["n"], "join": {"as": "it", "reference": "that"}}
    response = await articles.send("articles", body)
    if "[postgres]" in request.node.name:  # one statement returns objects with joined ones
        page = response.json()
        assert 30 <= len(page["items"]) <= 40
        assert page["next"] is not None
        return
    problem = assert_problem(response, 422, "too-costly")
    assert problem["bytes"] == LIMITS.bytes
    assert "fewer fields" in problem["detail"]
    assert len((await articles.query("articles", {**body, "limit": 30}))["items"]) == 30


async def test_a_conditional_write_continues_after_large_objects(articles: QueryClient) -> None:
    headers, patch = {"content-type": UPDATE}, b'{"n": {"inc": 1}}'
    path = "articles?text.like=x%25&allow_scan=true"
    response = await articles.client.patch(path, content=patch, headers=headers)
    summary = response.json()
    assert (summary["written"], summary["failed"], summary["next"]) == (COUNT, 0, None), summary
