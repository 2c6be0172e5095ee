"""Repetitions of writes to own objects get the first answer, whatever the object is now."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.data.owned.drafts import JSON_PATCH, SECRET, UPDATE, Drafts, batch_request
from tests.process.service import unique

ABSENT: Final = {"if-none-match": "*"}

Request = tuple[str, dict[str, Any]]

REQUESTS: Final[dict[str, Request]] = {
    "delete": ("DELETE", {}),
    "put": ("PUT", {"json": {"title": "mine", "hits": 2}}),
    "put if there is none": ("PUT", {"json": {"title": "mine"}, "headers": ABSENT}),
    "update of one system": ("PATCH", {"json": {"title": {"set": "m"}}, "headers": UPDATE}),
    "update of both": (
        "PATCH",
        {"json": {"title": {"set": "m"}, "hits": {"inc": 1}}, "headers": UPDATE},
    ),
    "JSON Patch": (
        "PATCH",
        {"json": [{"op": "replace", "path": "/title", "value": "m"}], "headers": JSON_PATCH},
    ),
}


async def give_away(drafts: Drafts, path: str) -> None:
    body = {"author": {"set": "bob"}, "title": {"set": SECRET}}
    await drafts.request("operator", "PATCH", path, json=body, headers=UPDATE)


async def delete(drafts: Drafts, path: str) -> None:
    await drafts.request("operator", "DELETE", path)


@pytest.mark.parametrize("meanwhile", [give_away, delete])
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_repeated_write_is_answered_like_the_first(
    drafts: Drafts, name: str, meanwhile: Any
) -> None:
    method, request = REQUESTS[name]
    path, key = f"drafts/{unique()}", {"idempotency-key": unique("key")}
    if name != "put if there is none":
        await drafts.request("ada", "PUT", path, json={"title": "old", "hits": 1})
    send = {**request, "headers": {**request.get("headers", {}), **key}}
    first = await drafts.request("ada", method, path, **send)
    assert first.status_code in (200, 201, 204), first.text
    await meanwhile(drafts, path)
    before = await drafts.request("operator", "GET", path)
    repeated = await drafts.request("ada", method, path, **send)
    assert repeated.status_code == first.status_code, repeated.text
    assert repeated.headers["idempotency-replayed"] == "true"
    assert (repeated.content, repeated.headers.get("etag")) == (
        first.content,
        first.headers.get("etag"),
    )
    after = await drafts.request("operator", "GET", path)
    assert (after.status_code, after.headers.get("etag")) == (
        before.status_code,
        before.headers.get("etag"),
    )


@pytest.mark.parametrize("class_name", ["drafts", "strict"])
async def test_items_of_a_repeated_batch_are_answered_like_the_first(
    drafts: Drafts, class_name: str
) -> None:
    ids, key = [unique() for _ in range(3)], {"idempotency-key": unique("key")}
    puts = [{"op": "put", "id": id_, "body": {"title": "x"}} for id_ in ids]
    first = await batch(drafts, class_name, key, puts)
    assert [item["status"] for item in first] == [201, 201, 201]
    await delete(drafts, f"{class_name}/{ids[0]}")
    await give_away(drafts, f"{class_name}/{ids[1]}")
    repeated = await batch(drafts, class_name, key, puts)
    assert repeated == [{**item, "replayed": True} for item in first]


async def batch(
    drafts: Drafts, class_name: str, key: dict[str, str], operations: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    request = batch_request(*({"class": class_name, **item} for item in operations))
    request["headers"] = {**request.get("headers", {}), **key}
    results: list[dict[str, Any]] = (await drafts.request("ada", "POST", "batch", **request)).json()
    return results


async def test_a_key_does_not_reach_an_object_that_is_not_ones_own(drafts: Drafts) -> None:
    await drafts.put_bobs()
    request = {"json": {"title": {"set": "m"}}, "headers": {**UPDATE, "idempotency-key": "k"}}
    his = await drafts.request("bob", "PATCH", "drafts/bobs", **request)
    assert his.status_code == 200
    hers = await drafts.request("ada", "PATCH", "drafts/bobs", **request)
    assert hers.status_code == 404
    assert "idempotency-replayed" not in hers.headers


async def test_another_request_under_the_key_is_refused(drafts: Drafts) -> None:
    path, key = f"drafts/{unique()}", {"idempotency-key": unique("key")}
    await drafts.request("ada", "PUT", path, json={"title": "old"})
    first = await drafts.request("ada", "DELETE", path, headers=key)
    assert first.status_code == 204
    other = {"json": {"title": {"set": "m"}}, "headers": {**UPDATE, **key}}
    assert (await drafts.request("ada", "PATCH", path, **other)).status_code == 422
