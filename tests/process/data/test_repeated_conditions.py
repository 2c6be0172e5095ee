"""Repeated writes get the first answer, even if a condition no longer holds or others wrote."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.data.pinned.shop import Shop
from tests.process.service import Service, field_on

SYSTEMS: Final = ("redis", "postgres", "mongo", "redis-mongo")
OTHER: Final = {"if-none-match": '"other"'}
KEY: Final = {"idempotency-key": "once"}
REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "delete": ("DELETE", {}),
    "put": ("PUT", {"json": {"price": 2}}),
    "patch": ("PATCH", {"json": {"price": 2}, "headers": {"content-type": MERGE}}),
}


def classes(systems: str, **extra: Any) -> dict[str, Any]:
    first, _, second = systems.partition("-")
    stock = field_on(second or first, "integer", group="stock")
    return {"goods": {"fields": {"price": field_on(first, "integer"), "stock": stock, **extra}}}


@pytest.fixture(params=SYSTEMS)
async def shop(mediator: Service, request: pytest.FixtureRequest) -> Shop:
    """A class on one system, or on two, with an object."""
    shop = Shop.of(mediator)
    await shop.change(classes(request.param))
    created = await shop.send("PUT", "goods/a", json={"price": 1, "stock": 1})
    assert created.status_code == 201, created.text
    return shop


async def send(shop: Shop, name: str, conditions: dict[str, str], **headers: str) -> Any:
    method, request = REQUESTS[name]
    all_headers = {**request.get("headers", {}), **conditions, **headers}
    return await shop.send(method, "goods/a", **{**request, "headers": all_headers})


def check_repeated(first: Any, repeated: Any) -> None:
    assert first.status_code in (200, 204), first.text
    assert repeated.status_code == first.status_code, repeated.text
    assert repeated.headers["idempotency-replayed"] == "true"
    assert (repeated.content, repeated.headers.get("etag")) == (
        first.content,
        first.headers.get("etag"),
    )


@pytest.mark.parametrize("name", REQUESTS)
async def test_an_object_that_is_gone_does_not_change_the_answer(shop: Shop, name: str) -> None:
    first = await send(shop, name, OTHER, **KEY)
    await shop.send("DELETE", "goods/a")
    check_repeated(first, await send(shop, name, OTHER, **KEY))
    assert (await shop.send("GET", "goods/a")).status_code == 404


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_version_that_is_excluded_by_now_does_not_change_the_answer(
    shop: Shop, name: str
) -> None:
    conditions = {"if-match": (await shop.send("GET", "goods/a")).headers["etag"], **OTHER}
    first = await send(shop, name, conditions, **KEY)
    await shop.send("PUT", "goods/a", json={"price": 5})
    check_repeated(first, await send(shop, name, conditions, **KEY))
    assert await shop.shown("goods/a") == {"id": "a", "price": 5}


@pytest.mark.parametrize(
    ("type_", "body", "other"),
    [
        (JSON_PATCH, [{"op": "replace", "path": "/price", "value": 1}], []),
        (JSON_PATCH, [{"op": "test", "path": "/stock", "value": 1}], []),
        (UPDATE, {}, {"price": {"set": 1}}),
    ],
    ids=["replace", "test", "nothing"],
)
async def test_a_patch_that_changed_nothing_does_not_undo_a_later_write(
    shop: Shop, type_: str, body: Any, other: Any
) -> None:
    """A's patch changes nothing; B sets another price; A, who got no answer, repeats."""
    read = await shop.send("GET", "goods/a")
    headers = {"content-type": type_, **KEY}
    first = await shop.send("PATCH", "goods/a", json=body, headers=headers)
    assert first.headers["etag"] == read.headers["etag"]
    changed = await shop.send("PUT", "goods/a?fields=price", json={"price": 7})
    assert changed.status_code == 200, changed.text
    check_repeated(first, await shop.send("PATCH", "goods/a", json=body, headers=headers))
    assert await shop.shown("goods/a") == {"id": "a", "price": 7, "stock": 1}
    reused = await shop.send("PATCH", "goods/a", json=other, headers=headers)
    assert_problem(reused, 422, "idempotency-key-reused")


async def test_a_tag_of_a_former_schema_does_not_change_the_answer(mediator: Service) -> None:
    shop = Shop.of(mediator)
    await shop.change(classes("redis-mongo"))
    tag = (await shop.send("PUT", "goods/a", json={"price": 1, "stock": 1})).headers["etag"]
    first = await send(shop, "put", {"if-match": tag}, **KEY)
    put = {"op": "put", "class": "goods", "id": "a", "body": {"price": 3}}
    batch = {"operations": [{**put, "if_match": first.headers["etag"]}]}
    headers = {"idempotency-key": "batch"}
    [item] = (await shop.send("POST", "batch", json=batch, headers=headers)).json()
    assert item["status"] == 200, item
    await shop.change(classes("redis-mongo", more={"type": "string"}))
    # Its ETag is another one now, as it has the version of the schema.
    single = await send(shop, "put", {"if-match": tag}, **KEY)
    assert (single.status_code, single.content) == (200, first.content), single.text
    assert single.headers["idempotency-replayed"] == "true"
    [repeated] = (await shop.send("POST", "batch", json=batch, headers=headers)).json()
    assert (repeated["status"], repeated["replayed"], repeated["body"]) == (200, True, item["body"])
    for key in ({}, {"idempotency-key": "new"}):
        refused = await shop.send("POST", "batch", json=batch, headers=key)
        assert refused.json()[0]["status"] == 412


async def test_a_new_request_under_a_key_is_refused_as_without_one(shop: Shop) -> None:
    tag = (await shop.send("GET", "goods/a")).headers["etag"]
    for conditions in ({"if-none-match": tag}, {"if-match": '"x"'}):
        for headers in ({}, {"idempotency-key": "new"}):
            refused = await send(shop, "patch", conditions, **headers)
            assert_problem(refused, 412, "precondition-failed")
    await shop.send("DELETE", "goods/a")
    details = []
    for headers in ({}, {"idempotency-key": "new"}):
        refused = await send(shop, "patch", OTHER, **headers)
        details.append(assert_problem(refused, 404, "not-found")["detail"])
    assert details == ["goods/a does not exist."] * 2


async def test_another_request_under_the_key_is_refused(shop: Shop) -> None:
    await send(shop, "delete", OTHER, **KEY)
    other = await send(shop, "patch", OTHER, **KEY)
    assert_problem(other, 422, "idempotency-key-reused")
