"""Only owners can write to objects with owners."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from mediator.access.owned_plane import OwnedPlane
from mediator.base.errors import AlreadyExists, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    Update,
    WriteOperation,
)
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from tests.process.data.owned.drafts import (
    BOBS,
    JSON_PATCH,
    MERGE,
    NDJSON,
    OPERATIONS,
    SECRET,
    UPDATE,
    Drafts,
    Interrupted,
    batch_request,
)
from tests.process.service import unique


async def test_the_creator_owns_an_object_and_cannot_change_its_owner(drafts: Drafts) -> None:
    created = await drafts.request("ada", "POST", "drafts", json={"title": "new"})
    assert created.status_code == 201
    assert created.json()["author"] == "ada"
    path = f"drafts/{created.json()['id']}"
    for request in (
        {"json": {"author": "bob"}, "headers": MERGE},
        {"json": [{"op": "replace", "path": "/author", "value": "bob"}], "headers": JSON_PATCH},
        {"json": {"author": {"set": "bob"}}, "headers": UPDATE},
    ):
        refused = await drafts.request("ada", "PATCH", path, **request)
        assert refused.status_code == 403, refused.text
        assert refused.json()["scope"] == "admin"
    for body in ({"author": "bob"}, {"title": "x", "author": "bob"}):
        assert (await drafts.request("ada", "PUT", path, json=body)).status_code == 403
    tag = (await drafts.request("ada", "PUT", path, json={"title": "newer"})).headers["etag"]
    stale = {"if-match": created.headers["etag"]}
    assert (await drafts.request("ada", "DELETE", path, headers=stale)).status_code == 412
    changed = await drafts.request(
        "ada", "PATCH", path, json={"hits": {"inc": 2}}, headers={**UPDATE, "if-match": tag}
    )
    assert changed.json()["hits"] == 2
    projection = await drafts.request("ada", "GET", f"{path}?fields=hits")
    assert projection.json() == {"hits": 2, "id": created.json()["id"]}
    condition = {"if-none-match": projection.headers["etag"]}
    assert (
        await drafts.request("ada", "GET", f"{path}?fields=hits", headers=condition)
    ).status_code == 304
    assert (await drafts.request("ada", "DELETE", path)).status_code == 204


async def test_an_upsert_by_a_unique_key_finds_own_objects_only(drafts: Drafts) -> None:
    """Another subject's value is taken, and the object unchanged; the refusal does not name it."""
    path, change = "strict?code=first&upsert=true", {"json": {"title": SECRET}, "headers": MERGE}
    created = await drafts.request("bob", "PATCH", path, **change)
    assert (created.status_code, created.json()["author"]) == (201, "bob")
    mine = {"json": {"title": "mine"}, "headers": MERGE}
    refused = await drafts.request("ada", "PATCH", path, **mine)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-unique")
    assert SECRET not in refused.text
    assert created.json()["id"] not in refused.text
    repeated = await drafts.request("bob", "PATCH", path, **change)
    assert (repeated.status_code, repeated.json()["id"]) == (200, created.json()["id"])
    assert repeated.json()["title"] == SECRET


async def test_an_administrator_gives_an_object_away(drafts: Drafts) -> None:
    await drafts.request("ada", "PUT", "drafts/given", json={"title": "x"})
    body = {"author": {"set": "bob"}}
    answer = await drafts.request("operator", "PATCH", "drafts/given", json=body, headers=UPDATE)
    assert answer.status_code == 200
    assert (await drafts.request("ada", "GET", "drafts/given")).status_code == 404
    assert (await drafts.request("bob", "DELETE", "drafts/given")).status_code == 204
    without_owner = await drafts.request("operator", "PUT", "drafts/unsaid", json={})
    assert without_owner.status_code == 400  # an administrator must name the owner


@pytest.mark.usefixtures("patient")
async def test_many_writes_at_once_lose_none(drafts: Drafts) -> None:
    """Each reads first, is bound to that version, and has to retry after the others."""
    await drafts.request("ada", "PUT", "drafts/count", json={"hits": 0})
    body = {"title": {"set": "x"}, "hits": {"inc": 1}}
    answers = await asyncio.gather(
        *(
            drafts.request("ada", "PATCH", "drafts/count", json=body, headers=UPDATE)
            for _ in range(8)
        )
    )
    assert [answer.status_code for answer in answers] == [200] * 8
    assert (await drafts.request("ada", "DELETE", "drafts/count?fields=title")).status_code == 200
    assert (await drafts.request("ada", "GET", "drafts/count")).json()["hits"] == 8


async def test_idempotency_keys_are_separate_for_each_sender(drafts: Drafts) -> None:
    headers = {"idempotency-key": unique("key")}
    body = {"title": SECRET, "hits": 3}
    first = await drafts.request("bob", "POST", "drafts", json=body, headers=headers)
    repeated = await drafts.request("bob", "POST", "drafts", json=body, headers=headers)
    assert repeated.headers["idempotency-replayed"] == "true"
    assert repeated.json() == first.json()
    hers = await drafts.request("ada", "POST", "drafts", json=body, headers=headers)
    assert hers.status_code == 201
    assert hers.json()["id"] != first.json()["id"]
    assert "idempotency-replayed" not in hers.headers


async def test_an_import_and_a_batch_create_and_change_ones_own(drafts: Drafts) -> None:
    lines = b'{"id":"line","title":"l"}\n{"id":"other","author":"bob"}\n'
    summary = await drafts.request("ada", "POST", "drafts/import", content=lines, headers=NDJSON)
    assert (summary.json()["imported"], summary.json()["failed"]) == (1, 1)
    operations: list[dict[str, Any]] = [
        {"op": "patch", "id": "line", "body": {"title": "m"}},
        {"op": "get", "id": "line"},
        {"op": "put", "class": "notes", "id": "free", "body": {}},
        {"op": "get", "class": "notes", "id": "free"},
        {"op": "delete", "id": "line"},
        {"op": "get", "id": "line"},
    ]
    answer = await drafts.request("ada", "POST", "batch", **batch_request(*operations))
    assert [result["status"] for result in answer.json()] == [200, 200, 201, 200, 204, 404]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("before", ["ada", None])
async def test_an_overtaken_write_does_not_apply_for_the_next_owner(
    drafts: Drafts, name: str, before: str | None
) -> None:
    """Between her read and her write, her object is deleted and his created under the same id."""
    plane, database = drafts.running.container.mediator.data, drafts.database
    with suppress(NotFound):
        await plane.write(Delete(database, "drafts", "race", unique("op")))
    if before is not None:
        values: dict[str, Any] = {"author": before, "title": "x", "hits": 0}
        await plane.write(Create(database, "drafts", "race", unique("op"), values=values))

    async def overtake() -> None:
        if before is not None:
            await plane.write(Delete(database, "drafts", "race", unique("op")))
        await plane.write(Create(database, "drafts", "race", unique("op"), values=dict(BOBS)))

    hers = OwnedPlane(cast("DataPlane", Interrupted(plane, overtake)), lambda _db, _class: "ada")
    with pytest.raises((NotFound, AlreadyExists)):
        await hers.write(OPERATIONS[name](database, unique("op")))
    assert (await plane.read(Get(database, "drafts", "race"), STRONG)).values == BOBS


async def test_a_write_does_not_apply_after_the_owner_has_changed(drafts: Drafts) -> None:
    plane, database = drafts.running.container.mediator.data, drafts.database
    for name in ("put", "title", "both", "read_modify_write", "delete"):
        put = Put(database, "drafts", "race", unique("op"), values={"author": "ada"})
        await plane.write(put)

        async def give_away() -> None:
            update = Update(database, "drafts", "race", unique("op"), values=dict(BOBS))
            await plane.write(update)

        hers = OwnedPlane(cast("DataPlane", Interrupted(plane, give_away)), lambda _db, _c: "ada")
        with pytest.raises((NotFound, AlreadyExists)):
            await hers.write(OPERATIONS[name](database, unique("op")))
        assert (await plane.read(Get(database, "drafts", "race"), STRONG)).values == BOBS


async def test_a_write_to_another_system_requires_the_version_read_there(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client overtakes her before the data plane sets the intents of her write."""
    plane, database = drafts.running.container.mediator.data, drafts.database
    values: dict[str, Any] = {"author": "ada", "hits": 0}
    await plane.write(Put(database, "drafts", "far", unique("op"), values=values))
    writes, write = 0, plane.joint.write

    async def interrupted(route: ClassRoute, operation: WriteOperation) -> Outcome:
        nonlocal writes
        writes += 1
        if writes == 1:
            await plane.write(Delete(database, "drafts", "far", unique("op")))
            bobs: dict[str, Any] = {**BOBS, "hits": 7}
            await plane.write(Create(database, "drafts", "far", unique("op"), values=bobs))
        return await write(route, operation)

    monkeypatch.setattr(plane.joint, "write", interrupted)
    hers = OwnedPlane(plane, lambda _db, _class: "ada")
    with pytest.raises(NotFound):
        await hers.write(Update(database, "drafts", "far", unique("op"), values={"hits": 1}))
    assert writes == 3
    assert (await plane.read(Get(database, "drafts", "far"), STRONG)).values == {**BOBS, "hits": 7}
