"""The time of an object's last write, on every store and over two of them, by the data API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import orjson
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.control.port import ChangeOptions
from sketch.protocol.port import Partition
from sketch.protocol.wire import decode
from tests.process.caching.cached_paper import Paper
from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.service import Service, field_on, unique

OPTIONS: Final = DataOptions(cursor_key=b"k" * 32)
LONG_AGO: Final = "2001-02-03T04:05:06Z"
REFUSED: Final = "is set by the service, at every write"
PAIRS: Final = [
    (field, updated)
    for field in ("redis", "postgres", "mongo")
    for updated in ("redis", "postgres", "mongo")
]


def notes(system: str, elsewhere: str | None = None, **members: Any) -> dict[str, Any]:
    """Return a class whose time of the last write can be on another system than other fields."""
    fields = {
        "title": field_on(system, required=True),
        "body": field_on(system, "document"),
        "count": field_on(system, "integer", minimum=0),
        "created": field_on(system, "timestamp", default="now"),
        "updated": field_on(
            elsewhere or system, "timestamp", updated=True, index=True, group="updated"
        ),
    }
    return {"notes": {"fields": fields, **members}}


@dataclass
class Notes:
    """The notes of a database, and a client of them."""

    http: httpx.AsyncClient

    async def put(self, id_: str, **members: Any) -> dict[str, Any]:
        answer = await self.http.put(f"notes/{id_}", json={"title": id_, **members})
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def patch(self, type_: str, body: Any, **headers: str) -> httpx.Response:
        fields = {"content-type": type_} | {k.replace("_", "-"): v for k, v in headers.items()}
        return await self.http.patch("notes/a", json=body, headers=fields)

    async def get(self, id_: str = "a") -> dict[str, Any]:
        document: dict[str, Any] = (await self.http.get(f"notes/{id_}")).json()
        return document

    async def tag(self) -> str:
        return str((await self.http.get("notes/a")).headers["etag"])


@asynccontextmanager
async def open_notes(on: Service, classes: dict[str, Any]) -> AsyncIterator[Notes]:
    database = await on.put_schema(classes)
    api = DataApi(
        on.mediator.data,
        OPTIONS,
        on.observed.append,
        DataServices(transact=on.mediator.transactions.run),
    )
    base = f"http://test/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base) as http:
        yield Notes(http)


def moment(note: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(note["updated"])


@pytest.mark.parametrize(("system", "elsewhere"), PAIRS)
async def test_every_write_sets_it(mediator: Service, system: str, elsewhere: str) -> None:
    async with open_notes(mediator, notes(system, elsewhere)) as client:
        start = datetime.now(UTC)
        created = await client.put("a", body={"x": 1}, count=1)
        assert start <= moment(created) <= datetime.now(UTC)
        assert created["created"] == created["updated"], "one time for all of an object"
        last = created["updated"]
        for type_, body in (
            (MERGE, {"title": "b"}),
            (MERGE, {"body": {"y": 2}}),
            (JSON_PATCH, [{"op": "add", "path": "/body/z", "value": 3}]),
            (UPDATE, {"count": {"inc": 1}}),
            (UPDATE, {"count": {"inc": 1}, "title": {"set": "c"}, "body": {"unset": True}}),
        ):
            answer = await client.patch(type_, body)
            assert answer.status_code == 200, answer.text
            note = await client.get()
            assert note["updated"] == answer.json()["updated"] > last, body
            assert answer.headers["etag"] == await client.tag()
            last = note["updated"]
        assert note == {**note, "title": "c", "count": 3, "created": created["created"]}
        assert (await client.http.put("notes/a?fields=title", json={"title": "d"})).is_success
        assert (await client.get())["updated"] > last
        assert (await client.put("a"))["updated"] == (await client.get())["updated"]


@pytest.mark.parametrize("elsewhere", ["redis", "postgres"])
async def test_many_writes_set_it_each(mediator: Service, elsewhere: str) -> None:
    async with open_notes(mediator, notes("postgres", elsewhere)) as client:
        start = datetime.now(UTC)
        posted = await client.http.post("notes", json=[{"id": "p", "title": "p"}])
        operations = [
            {"op": "create", "class": "notes", "id": "b", "body": {"title": "b"}},
            {"op": "put", "class": "notes", "id": "c", "body": {"title": "c"}},
        ]
        batch = await client.http.post("batch", json={"operations": operations})
        committing = [{**operations[1], "id": "t"}, {**operations[1], "id": "u"}]
        committed = await client.http.post("transactions", json={"operations": committing})
        line = b'{"id": "i", "title": "i"}\n'
        imported = await client.http.post(
            "notes/import", content=line, headers={"content-type": "application/x-ndjson"}
        )
        for answer in (posted, batch, committed, imported):
            assert answer.status_code == 200, answer.text
        for id_ in "pbctui":
            assert start <= moment(await client.get(id_)) <= datetime.now(UTC), id_


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_an_empty_change_is_not_a_write(mediator: Service, system: str) -> None:
    async with open_notes(mediator, notes(system)) as client:
        before = await client.put("a")
        for type_, body in (
            (MERGE, {}),
            (UPDATE, {}),
            (JSON_PATCH, []),
            (JSON_PATCH, [{"op": "replace", "path": "/title", "value": "a"}]),
            (JSON_PATCH, [{"op": "test", "path": "/updated", "value": before["updated"]}]),
        ):
            answer = await client.patch(type_, body)
            assert answer.status_code == 200, answer.text
            assert await client.get() == before, body


@pytest.mark.parametrize("elsewhere", ["mongo", "redis"])
async def test_clients_cannot_set_it(mediator: Service, elsewhere: str) -> None:
    async with open_notes(mediator, notes("mongo", elsewhere)) as client:
        before = await client.put("a")
        body = {"title": "b", "updated": LONG_AGO}
        refusals = [
            await client.http.put("notes/a", json=body),
            await client.http.put("notes/a", json={"title": "b", "updated": None}),
            await client.http.post("notes", json=body),
            await client.patch(MERGE, body),
            await client.patch(MERGE, {"updated": None}),
            await client.patch(MERGE, {"body": {"x": 1}, "updated": LONG_AGO}),
            await client.patch(UPDATE, {"updated": {"set": LONG_AGO}}),
            await client.patch(UPDATE, {"updated": {"now": True}}),
            await client.patch(UPDATE, {"updated": {"unset": True}}),
            await client.patch(JSON_PATCH, [{"op": "add", "path": "/updated", "value": LONG_AGO}]),
            await client.patch(JSON_PATCH, [{"op": "remove", "path": "/updated"}]),
            await client.patch(JSON_PATCH, [{"op": "copy", "path": "/updated", "from": "/title"}]),
            await client.patch(JSON_PATCH, [{"op": "replace", "path": "", "value": body}]),
        ]
        for refused in refusals:
            problem = assert_problem(refused, 400, "invalid", "/updated")
            assert problem["errors"][0]["detail"] == REFUSED
        partial = await client.http.put("notes/a?fields=title,updated", json={"title": "b"})
        assert_problem(partial, 400, "invalid")
        assert partial.json()["errors"] == [{"pointer": "fields", "detail": f"updated {REFUSED}"}]
        assert_problem(await client.http.delete("notes/a?fields=updated"), 400, "invalid")
        batch = {"operations": [{"op": "put", "class": "notes", "id": "a", "body": body}]}
        [result] = (await client.http.post("batch", json=batch)).json()
        assert result["problem"]["errors"][0]["pointer"] == "/body/updated"
        assert await client.get() == before


@pytest.mark.parametrize(("system", "elsewhere"), PAIRS)
async def test_a_retry_gets_the_times_of_the_first(
    mediator: Service, system: str, elsewhere: str
) -> None:
    async with open_notes(mediator, notes(system, elsewhere)) as client:
        body = {"id": "a", "title": "a", "body": {}, "count": 0}
        requests: list[tuple[str, str, str, Any]] = [
            ("POST", "notes", "application/json", body),
            ("PUT", "notes/a", "application/json", body),
            ("PATCH", "notes/a", MERGE, {"title": "b"}),
            ("PATCH", "notes/a", MERGE, {"body": {"y": 2}}),
            ("PATCH", "notes/a", UPDATE, {"count": {"inc": 1}}),
        ]
        for number, (method, path, type_, members) in enumerate(requests):
            headers = {"content-type": type_, "idempotency-key": f"k{number}"}
            first, repeated = [
                await client.http.request(method, path, json=members, headers=headers) for _ in "12"
            ]
            assert first.is_success, first.text
            assert repeated.headers["idempotency-replayed"] == "true"
            assert repeated.json() == first.json(), number
            assert (await client.get())["updated"] == first.json()["updated"]


@pytest.mark.parametrize("elsewhere", ["postgres", "redis"])
async def test_conditions_hold_for_objects_with_it(mediator: Service, elsewhere: str) -> None:
    async with open_notes(mediator, notes("postgres", elsewhere)) as client:
        await client.put("a", count=1)
        stale = await client.tag()
        answer = await client.patch(UPDATE, {"count": {"inc": 1}}, if_match=stale)
        assert answer.status_code == 200, answer.text
        fresh = await client.get()
        assert_problem(
            await client.patch(MERGE, {"title": "b"}, if_match=stale), 412, "precondition-failed"
        )
        refused = await client.patch(UPDATE, {"count": {"inc": -5}})
        assert_problem(refused, 409, "operator-refused", "/count")
        assert await client.get() == fresh
        tag = (await client.http.get("notes/a?fields=title")).headers["etag"]
        partial = await client.http.put(
            "notes/a?fields=title", json={"title": "c"}, headers={"if-match": tag}
        )
        assert partial.status_code == 200, partial.text
        assert partial.json() == {"id": "a", "title": "c"}, "only the addressed fields are returned"
        assert (await client.get())["updated"] > fresh["updated"]


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_queries_find_and_order_by_it(mediator: Service, system: str) -> None:
    async with open_notes(mediator, notes(system)) as client:
        times = {id_: (await client.put(id_))["updated"] for id_ in "cab"}
        query = {"filter": {"gt": ["updated", times["c"]]}, "order": [["updated", "desc"]]}
        items = (await client.http.post("notes/query", json=query)).json()["items"]
        assert [item["id"] for item in items] == ["b", "a"]


async def test_an_export_is_imported_as_it_was(mediator: Service) -> None:
    async with open_notes(mediator, notes("mongo", "redis")) as client:
        for id_ in "ab":
            await client.put(id_)
        exported = (await client.http.get("notes/export")).content
    async with open_notes(mediator, notes("postgres")) as client:
        imported = await client.http.post(
            "notes/import", content=exported, headers={"content-type": "application/x-ndjson"}
        )
        assert imported.json()["imported"] == 2, imported.text
        assert (await client.http.get("notes/export")).content == exported
        lines = [orjson.loads(line) for line in exported.splitlines()]
        assert (await client.put("a"))["updated"] > lines[0]["updated"]


@pytest.mark.parametrize("elsewhere", ["mongo", "redis"])
async def test_existing_objects_get_it_by_the_next_write_or_a_backfill(
    mediator: Service, elsewhere: str
) -> None:
    control = mediator.mediator.control
    fields = notes("mongo", elsewhere)["notes"]["fields"]
    former = {name: field for name, field in fields.items() if name != "updated"}
    name = await mediator.put_schema({"notes": {"fields": former}})
    for id_ in ("a", "b"):
        await mediator.create(name, "notes", id_, title=id_)
    await control.set_schema(name, {"classes": {"notes": {"fields": fields}}})
    assert await mediator.values(name, "notes", "a") == {"title": "a"}
    fields["updated"]["required"] = True
    document = {"classes": {"notes": {"fields": fields}}}
    change = await control.set_schema(name, document, options=ChangeOptions(backfill=True))
    assert change.violations == ()
    for id_ in ("a", "b"):
        values = await mediator.values(name, "notes", id_) or {}
        assert isinstance(values["updated"], datetime)
    before = await mediator.get(name, "notes", "a")
    await control.set_schema(name, document, options=ChangeOptions(backfill=True))
    assert await mediator.get(name, "notes", "a") == before, "left alone"


async def test_a_schema_that_makes_writes_joint_is_noted(mediator: Service) -> None:
    noted = {}
    for elsewhere in ("redis", "mongo"):
        document = {"classes": notes("redis", elsewhere)}
        change = await mediator.mediator.control.set_schema(unique("db"), document)
        noted[elsewhere] = [note for note in change.notes if "notes.updated" in note]
    assert noted["redis"] == []
    [note] = noted["mongo"]
    assert note == (
        "notes.updated changes with every write, and is on mongo: a write to fields on another"
        " system is one over both."
    )


async def test_a_cached_group_with_it_is_invalidated_by_every_write(paper: Paper) -> None:
    """A copy of the title, which is in its own group, stays; one of the whole object does not."""
    fields = {
        "title": field_on("postgres", group="title"),
        "hits": field_on("redis", "integer", default=0, group="hits"),
        "updated": field_on("postgres", "timestamp", updated=True),
    }
    cache = {"visibility": "public", "max_ttl_s": 60}
    database = unique("db")
    await paper.caches.sketch.create(Partition(database, "articles"))
    document = {"classes": {"articles": {"cache": cache, "fields": fields}}}
    await paper.running.mediator.control.set_schema(database, document)
    base = f"http://test/v1/{database}/articles/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(paper.api), base_url=base) as http:
        assert (await http.put("a", json={"title": "One"})).is_success
        await paper.release_leases()
        copies = {query: await http.get(f"a{query}") for query in ("", "?fields=title")}
        for copy in copies.values():
            assert "portolan-expires" in copy.headers
        changed = await http.patch("a", json={"hits": {"inc": 1}}, headers={"content-type": UPDATE})
        assert changed.is_success, changed.text
        await paper.release_leases()
        statuses = {
            query: (await http.get(f"a{query}", headers={"if-none-match": copy.headers["etag"]}))
            for query, copy in copies.items()
        }
        assert {query: answer.status_code for query, answer in statuses.items()} == {
            "": 200,
            "?fields=title": 304,
        }
        assert statuses[""].json()["updated"] > copies[""].json()["updated"]
        answer = await http.get("../sketch")
    filter_document = decode(answer.content)
    assert filter_document.contains("articles/a#main")
    assert not filter_document.contains("articles/a#title")
