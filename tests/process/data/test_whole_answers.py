"""`Prefer: return=representation` on real stores: a change returns the object as a read does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.process.caching.cached_paper import UPDATE, Paper
from tests.process.service import field_on, unique

MERGE = {"content-type": "application/merge-patch+json"}
REPRESENTATION = {"prefer": "return=representation"}


@pytest.fixture
async def http(paper: Paper) -> AsyncIterator[httpx.AsyncClient]:
    """A database with a class on each system alone, and one on two of them."""
    fields = {
        kind: {
            "title": field_on(kind),
            "tags": field_on(kind, "set", items="string"),
            "hits": field_on(kind, "float", default=0, group="hits"),
        }
        for kind in ("redis", "postgres", "mongo")
    }
    split = {"title": field_on("postgres"), "hits": field_on("redis", "float", group="hits")}
    classes: dict[str, Any] = {kind: {"fields": members} for kind, members in fields.items()}
    database = unique("db")
    control = paper.running.mediator.control
    await control.set_schema(database, {"classes": {**classes, "split": {"fields": split}}})
    transport, base = httpx.ASGITransport(paper.api), f"http://test/v1/{database}/"
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield client


@pytest.mark.parametrize("kind", ["redis", "postgres", "mongo"])
@pytest.mark.parametrize(
    ("headers", "change"),
    [
        (UPDATE, {"hits": {"inc": 2}}),
        (UPDATE, {"hits": {"inc": 2}, "title": {"set": "new"}}),
        (MERGE, {"title": "new"}),
        (MERGE, {"title": None}),
    ],
    ids=["one operator", "two", "a field set", "a field removed"],
)
async def test_a_change_returns_the_object_like_a_read(
    http: httpx.AsyncClient, kind: str, headers: dict[str, str], change: dict[str, Any]
) -> None:
    await http.put(f"{kind}/x", json={"title": "é", "tags": ["b", "a"], "hits": 1})
    patched = await http.patch(f"{kind}/x", json=change, headers=headers | REPRESENTATION)
    read = await http.get(f"{kind}/x")
    assert patched.headers["preference-applied"] == "return=representation"
    assert (patched.json(), patched.headers["etag"]) == (read.json(), read.headers["etag"])


async def test_an_object_on_two_systems_is_not_shown_whole(http: httpx.AsyncClient) -> None:
    await http.put("split/x", json={"title": "é", "hits": 1})
    patched = await http.patch(
        "split/x", json={"hits": {"inc": 2}}, headers=UPDATE | REPRESENTATION
    )
    assert patched.json() == {"id": "x", "hits": 3}
    assert "preference-applied" not in patched.headers
