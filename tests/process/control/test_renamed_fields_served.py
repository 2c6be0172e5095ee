"""Renamed fields over HTTP: the admin API, cached objects and queries, owners of objects."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from sketch.client import CoherentClient, Source
from tests.process.caching.guarded import Guarded
from tests.process.service import unique

CACHED = {"visibility": "public", "max_ttl_s": 60}


async def put_schema(
    guarded: Guarded, database: str, class_: dict[str, Any], **params: Any
) -> httpx.Response:
    return await guarded.admin.put(
        f"/admin/v1/schemas/{database}",
        json={"classes": {"goods": class_}},
        params=params,
        headers=await guarded.headers("operator", "schema"),
    )


async def make_database(guarded: Guarded, class_: dict[str, Any]) -> str:
    """Return a new database with a class."""
    database = unique("db")
    response = await put_schema(guarded, database, class_)
    assert response.status_code == 200, response.text
    return database


def class_with_price(name: str) -> dict[str, Any]:
    return {"cache": CACHED, "fields": {name: {"type": "integer", "index": True}}}


async def test_cached_objects_and_results_are_invalidated(running: Guarded) -> None:
    operator = await running.headers("operator", "write")
    database = await make_database(running, class_with_price("price"))
    path = f"/v1/{database}/goods"
    created = await running.data.put(f"{path}/a", json={"price": 5}, headers=operator)
    assert created.status_code == 201, created.text
    transport = httpx.ASGITransport(running.container.data)
    async with CoherentClient(
        "http://portolan", database, transport=transport, headers=operator
    ) as client:
        await client.get("goods", "a")
        assert (await client.get("goods", "a")).source is not Source.ORIGIN
        before = await running.data.get(f"{path}/a", headers=operator)
        response = await put_schema(
            running, database, class_with_price("unit_price"), rename="goods.price:unit_price"
        )
        assert response.status_code == 200, response.text
        await (
            client.refresh_filter()
        )  # within Δ of the change its cached copy can still be returned
        reread = await client.get("goods", "a")
        assert (reread.source, reread.value) == (Source.ORIGIN, {"id": "a", "unit_price": 5})
    headers = {"if-none-match": before.headers["etag"]}
    after = await running.data.get(f"{path}/a", headers={**operator, **headers})
    assert (after.status_code, after.json()) == (200, {"id": "a", "unit_price": 5})
    listed = await running.data.get(path, params={"unit_price.ge": "5"}, headers=operator)
    assert listed.json()["items"] == [{"id": "a", "unit_price": 5}]
    refused = await running.data.get(path, params={"price.ge": "5"}, headers=operator)
    assert refused.status_code == 400, refused.text
    query = await running.data.get(path, params={"unit_price.ge": "7"}, headers=operator)
    assert query.json()["items"] == []
    await running.data.patch(f"{path}/a", json={"unit_price": 8}, headers=operator)
    query = await running.data.get(path, params={"unit_price.ge": "7"}, headers=operator)
    assert query.json()["items"] == [{"id": "a", "unit_price": 8}]


async def test_the_owner_of_an_object_stays_its_owner(running: Guarded) -> None:
    def owned(name: str) -> dict[str, Any]:
        owner = {"type": "string", "required": True, "index": True}
        return {"owner_field": name, "fields": {name: owner, "text": {"type": "string"}}}

    operator = await running.headers("operator", "write")
    database = await make_database(running, owned("writer"))
    for name in ("ada", "bob"):
        await running.data.put(
            f"/v1/{database}/goods/{name}", json={"writer": name}, headers=operator
        )
    response = await put_schema(running, database, owned("author"), rename="goods.writer:author")
    assert response.status_code == 200, response.text
    model = running.container.mediator.data.model.databases[database]
    assert model.owned_until == {}
    read = await running.data.get(f"/v1/{database}/goods/ada", headers=operator)
    assert read.json() == {"id": "ada", "author": "ada"}


@pytest.mark.parametrize(
    ("rename", "detail"),
    [
        ("goods.price", "is written as class.old:new"),
        ("goods.price:1", "is written as class.old:new"),
        ("x" * 10_000, "is written as class.old:new"),
        ("goods.price:Ünit", "is written as class.old:new"),
        (["goods.price:a", "goods.price:b"], "goods.price would get two names"),
    ],
)
async def test_a_malformed_rename_is_refused(
    running: Guarded, rename: str | list[str], detail: str
) -> None:
    database = await make_database(running, class_with_price("price"))
    response = await put_schema(running, database, class_with_price("cost"), rename=rename)
    assert response.status_code == 400
    assert response.json()["errors"] == [{"pointer": "rename", "detail": detail}]


async def test_dry_runs_show_and_do_nothing(running: Guarded) -> None:
    operator = await running.headers("operator", "write")
    database = await make_database(running, class_with_price("price"))
    await running.data.put(f"/v1/{database}/goods/a", json={"price": 5}, headers=operator)
    hint = await put_schema(running, database, class_with_price("cost"), dry_run="true")
    [move] = hint.json()["moves"]
    assert move["reason"].endswith("to rename it, pass rename=goods.price:cost")
    plan = await put_schema(
        running, database, class_with_price("cost"), dry_run="true", rename="goods.price:cost"
    )
    assert plan.json()["moves"] == []
    read = await running.data.get(f"/v1/{database}/goods/a", headers=operator)
    assert read.json() == {"id": "a", "price": 5}
