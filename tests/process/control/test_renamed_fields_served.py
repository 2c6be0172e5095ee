"""Renamed fields over HTTP: the admin API, cached copies, cached queries, owners of objects."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from sketch.client import CoherentClient, Source
from tests.process.caching.guarded import Guarded
from tests.process.service import unique

CACHED = {"visibility": "public", "max_ttl_s": 60}


async def put_schema(
    of: Guarded, database: str, class_: dict[str, Any], **params: Any
) -> httpx.Response:
    return await of.admin.put(
        f"/admin/v1/schemas/{database}",
        json={"classes": {"goods": class_}},
        params=params,
        headers=await of.headers("operator", "schema"),
    )


async def opened(of: Guarded, class_: dict[str, Any]) -> str:
    """Return a new database with a class."""
    database = unique("db")
    answer = await put_schema(of, database, class_)
    assert answer.status_code == 200, answer.text
    return database


def priced(name: str) -> dict[str, Any]:
    return {"cache": CACHED, "fields": {name: {"type": "integer", "index": True}}}


async def test_cached_copies_and_results_are_not_used_any_more(running: Guarded) -> None:
    operator = await running.headers("operator", "write")
    database = await opened(running, priced("price"))
    path = f"/v1/{database}/goods"
    written = await running.data.put(f"{path}/a", json={"price": 5}, headers=operator)
    assert written.status_code == 201, written.text
    transport = httpx.ASGITransport(running.container.data)
    async with CoherentClient(
        "http://portolan", database, transport=transport, headers=operator
    ) as own:
        await own.get("goods", "a")
        assert (await own.get("goods", "a")).source is not Source.ORIGIN
        before = await running.data.get(f"{path}/a", headers=operator)
        answer = await put_schema(
            running, database, priced("unit_price"), rename="goods.price:unit_price"
        )
        assert answer.status_code == 200, answer.text
        await own.refresh_filter()  # within Δ of the change its copy may still be returned
        again = await own.get("goods", "a")
        assert (again.source, again.value) == (Source.ORIGIN, {"id": "a", "unit_price": 5})
    stale = {"if-none-match": before.headers["etag"]}
    after = await running.data.get(f"{path}/a", headers={**operator, **stale})
    assert (after.status_code, after.json()) == (200, {"id": "a", "unit_price": 5})
    found = await running.data.get(path, params={"unit_price.ge": "5"}, headers=operator)
    assert found.json()["items"] == [{"id": "a", "unit_price": 5}]
    former = await running.data.get(path, params={"price.ge": "5"}, headers=operator)
    assert former.status_code == 400, former.text
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
    database = await opened(running, owned("writer"))
    for who in ("ada", "bob"):
        await running.data.put(
            f"/v1/{database}/goods/{who}", json={"writer": who}, headers=operator
        )
    answer = await put_schema(running, database, owned("author"), rename="goods.writer:author")
    assert answer.status_code == 200, answer.text
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
async def test_a_malformed_rename_is_named(
    running: Guarded, rename: str | list[str], detail: str
) -> None:
    database = await opened(running, priced("price"))
    answer = await put_schema(running, database, priced("cost"), rename=rename)
    assert answer.status_code == 400
    assert answer.json()["errors"] == [{"pointer": "rename", "detail": detail}]


async def test_dry_runs_show_and_do_nothing(running: Guarded) -> None:
    operator = await running.headers("operator", "write")
    database = await opened(running, priced("price"))
    await running.data.put(f"/v1/{database}/goods/a", json={"price": 5}, headers=operator)
    hint = await put_schema(running, database, priced("cost"), dry_run="true")
    [move] = hint.json()["moves"]
    assert move["reason"].endswith("to rename it, pass rename=goods.price:cost")
    shown = await put_schema(
        running, database, priced("cost"), dry_run="true", rename="goods.price:cost"
    )
    assert shown.json()["moves"] == []
    read = await running.data.get(f"/v1/{database}/goods/a", headers=operator)
    assert read.json() == {"id": "a", "price": 5}
