"""Objects that belong to subjects: to everybody else they are not there, by whatever route.

Ada and Bob may both read and write the class `drafts`, whose objects belong to their `author`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
import orjson
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.access.owned_plane import OwnedPlane
from mediator.base.errors import AlreadyExists, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.routing.freshness import ANY, STRONG, ReadPreference
from mediator.routing.model import ClassRoute
from mediator.stores.port import SystemConfig
from tests.process.caching.guarded import Guarded, bearer, guarded
from tests.process.data.memory_plane import MemoryPlane, routing_model
from tests.process.service import field_on, unique

SECRET: Final = "what-only-bob-may-know"
RUN: Final = "0" * 32
NDJSON: Final = {"content-type": "application/x-ndjson"}
MERGE: Final = {"content-type": "application/merge-patch+json"}
JSON_PATCH: Final = {"content-type": "application/json-patch+json"}
UPDATE: Final = {"content-type": "application/vnd.portolan.update+json"}
_TITLE: Final = {"type": "string", "index": True}
SCHEMA: Final[dict[str, Any]] = {
    "classes": {
        "drafts": {
            "owner_field": "author",
            "fields": {
                "author": {**field_on("postgres"), "required": True, "index": True},
                "title": {**field_on("postgres"), "index": True},
                "hits": field_on("redis", "integer", group="hits", index=True),
            },
        },
        "notes": {"fields": {"title": _TITLE, "draft": {"type": "reference", "to": "drafts"}}},
        "strict": {
            "owner_field": "author",
            "require_if_match": True,
            "fields": {
                "author": {"type": "string", "required": True, "index": True},
                "title": _TITLE,
            },
        },
    }
}


@dataclass
class Drafts:
    """A database with Bob's objects, and the keys of those who ask for them."""

    running: Guarded
    database: str
    ada: dict[str, str]
    bob: dict[str, str]
    operator: dict[str, str]

    async def ask(self, who: str, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**getattr(self, who), **request.pop("headers", {})}
        path = f"/v1/{self.database}/{path}"
        return await self.running.data.request(method, path, headers=headers, **request)

    async def put_bobs(self) -> str:
        """Make Bob's object what the tests expect; returns its ETag."""
        body = {"title": SECRET, "hits": 7}
        answer = await self.ask("bob", "PUT", "drafts/bobs", json=body)
        assert answer.status_code in (200, 201), answer.text
        strict = {"author": "bob", "title": SECRET}
        headers = {"if-none-match": "*"}
        await self.ask("operator", "PUT", "strict/bobs", json=strict, headers=headers)
        return answer.headers["etag"]


@pytest.fixture(scope="module")
async def drafts(
    redis_config: SystemConfig,
    system_configs: Sequence[SystemConfig],
    catalogue_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Drafts]:
    jobs: Path = tmp_path_factory.mktemp("jobs")
    async with guarded(system_configs[:2], catalogue_url, redis_config.url, jobs) as running:
        yield await _furnish(running)


async def _furnish(running: Guarded) -> Drafts:
    tenancy, database = running.container.mediator.tenancy, unique("db")
    await tenancy.own(running.owner, database)
    grants = ["read", "write", "jobs"]
    keys = [await tenancy.create_key(running.owner, name, grants) for name in ("ada", "bob")]
    ada, bob = (bearer(made["key"]) for made in keys)
    operator = await running.headers("operator", "write")
    await _state_metrics(running)
    path = f"/admin/v1/schemas/{database}"
    answer = await running.admin.put(path, json=SCHEMA, headers=operator)
    assert answer.status_code == 200, answer.text
    route = running.container.mediator.data.model.databases[database].classes["drafts"]
    assert [fragment.system for fragment in route.fragments] == ["postgres", "redis"]
    found = Drafts(running, database, ada, bob, operator)
    await found.put_bobs()
    await found.ask("operator", "PUT", "notes/n", json={"title": "n", "draft": "bobs"})
    return found


async def _state_metrics(running: Guarded) -> None:
    """State metrics so that `field_on` spreads a class over both systems."""
    control = running.container.mediator.control
    fast, slow = {"write_throughput": 1e6, "read_latency": 1e3}, {"write_throughput": 1.0}
    await control.amend("redis", metrics=fast)
    await control.amend("postgres", metrics={**slow, "read_latency": 1e-6})


def a_batch(*operations: dict[str, Any]) -> dict[str, Any]:
    named = [{"class": "drafts", "id": "bobs", **operation} for operation in operations]
    return {"json": {"operations": named}}


JOB: Final = {"kind": "example.count", "spec": {"records": {"class": "drafts"}, "field": "title"}}
FILTER: Final = {"eq": ["title", SECRET]}
SUM: Final = {"aggregate": {"compute": {"n": {"count": "*"}, "sum": {"sum": "hits"}}}}

# What Ada asks to get at Bob's object, by route; and the status that she is answered with.
ROUTES: Final[dict[str, list[tuple[int, str, dict[str, Any]]]]] = {
    "GET /v1/{database}/{class}/{id}": [
        (404, "drafts/bobs", {}),
        (404, "drafts/bobs?fields=hits", {}),
        (404, "drafts/bobs?fields=author", {}),
        (404, "drafts/bobs", {"headers": {"prefer": "consistency=strong"}}),
    ],
    "HEAD /v1/{database}/{class}/{id}": [(404, "drafts/bobs", {})],
    "PUT /v1/{database}/{class}/{id}": [
        (409, "drafts/bobs", {"json": {"title": "mine"}}),
        (403, "drafts/bobs", {"json": {"title": "mine", "author": "bob"}}),
        (412, "drafts/bobs", {"json": {}, "headers": {"if-match": "*"}}),
        (412, "drafts/bobs", {"json": {}, "headers": {"if-none-match": "*"}}),
        (404, "drafts/bobs?fields=hits", {"json": {"hits": 1}}),
        (409, "strict/bobs", {"json": {}}),
    ],
    "PATCH /v1/{database}/{class}/{id}": [
        (404, "drafts/bobs", {"json": {"title": "mine"}, "headers": MERGE}),
        (403, "drafts/bobs", {"json": {"author": "bob"}, "headers": MERGE}),
        (404, "drafts/bobs", {"json": [], "headers": JSON_PATCH}),
        (404, "drafts/bobs", {"json": {"hits": {"inc": 1}}, "headers": UPDATE}),
    ],
    "DELETE /v1/{database}/{class}/{id}": [
        (404, "drafts/bobs", {}),
        (404, "drafts/bobs?fields=title", {}),
        (412, "drafts/bobs", {"headers": {"if-match": "*"}}),
        (428, "strict/bobs", {}),
    ],
    "GET /v1/{database}/{class}": [
        (200, "drafts", {}),
        (200, "drafts?ids=bobs", {}),
        (200, "drafts?ids=bobs,nobodys&fields=title", {}),
        (200, f"drafts?title={SECRET}", {}),
        (403, "drafts?title=x&explain=true", {}),
    ],
    "HEAD /v1/{database}/{class}": [(200, "drafts", {})],
    "POST /v1/{database}/{class}": [
        (409, "drafts", {"json": {"id": "bobs"}}),
        (403, "drafts", {"json": {"author": "bob"}}),
        (200, "drafts", {"json": [{"id": "bobs"}, {"author": "bob"}]}),
    ],
    "POST /v1/{database}/{class}/query": [
        (200, "drafts/query", {"json": {}}),
        (200, "drafts/query", {"json": {"filter": FILTER}}),
        (200, "drafts/query", {"json": {"filter": {"not": FILTER}, "allow_scan": True}}),
        (200, "drafts/query", {"json": {"filter": {"or": [FILTER, {"eq": ["hits", 7]}]}}}),
        (200, "drafts/query", {"json": SUM}),
        (403, "drafts/query", {"json": {"explain": True}}),
        (403, "notes/query", {"json": {"join": {"as": "of", "reference": "draft"}}}),
    ],
    "POST /v1/{database}/{class}/import": [
        (200, "drafts/import", {"content": b'{"id":"bobs"}\n', "headers": NDJSON}),
    ],
    "GET /v1/{database}/{class}/export": [
        (200, "drafts/export", {}),
        (200, "drafts/export?fields=title", {}),
    ],
    "HEAD /v1/{database}/{class}/export": [(200, "drafts/export", {})],
    "POST /v1/{database}/batch": [
        (200, "batch", a_batch({"op": "get"})),
        (200, "batch", a_batch({"op": "put", "body": {}}, {"op": "get"}, {"op": "delete"})),
        (200, "batch", a_batch({"op": "patch", "body": {"title": "x"}}, {"op": "get"})),
        (200, "batch", a_batch({"op": "update", "body": {"hits": {"inc": 1}}})),
    ],
    "POST /v1/{database}/transactions": [
        (403, "transactions", a_batch({"op": "patch", "body": {"title": "x"}})),
        (
            403,
            "transactions",
            {"json": {"reads": [{"class": "drafts", "id": "bobs", "etag": None}]}},
        ),
    ],
    "GET /v1/{database}/changes": [
        (403, "changes?after=beginning", {}),
        (403, "changes?class=drafts&after=beginning", {}),
        (200, "changes?class=notes&after=beginning", {}),
    ],
    "GET /v1/{database}/sketch": [
        (403, "sketch?class=drafts", {}),
        (200, "sketch", {"headers": {"accept": "application/json"}}),
    ],
    "HEAD /v1/{database}/sketch": [(403, "sketch?class=drafts", {})],
    "POST /v1/{database}/jobs": [(403, "jobs", {"json": JOB})],
    "GET /v1/{database}/jobs": [(200, "jobs", {})],
    "GET /v1/{database}/jobs/{run}": [(404, f"jobs/{RUN}", {})],
    "DELETE /v1/{database}/jobs/{run}": [(404, f"jobs/{RUN}", {})],
    "POST /v1/{database}/jobs/{run}/resume": [(404, f"jobs/{RUN}/resume", {})],
    "GET /v1/{database}/jobs/{run}/results": [(404, f"jobs/{RUN}/results", {})],
}


def test_every_route_is_asked_for_what_belongs_to_others() -> None:
    api = DataApi(MemoryPlane(routing_model(1)), DataOptions(b"k"), lambda _: None)
    assert {f"{m} {route.template}" for route in api.routes for m in route.handlers} == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
async def test_what_belongs_to_somebody_else_is_never_answered(drafts: Drafts, route: str) -> None:
    tag = await drafts.put_bobs()
    for status, path, request in ROUTES[route]:
        answer = await drafts.ask("ada", route.partition(" ")[0], path, **request)
        assert answer.status_code == status, (path, answer.text)
        assert SECRET not in answer.text.replace(path, "")
        assert tag not in answer.text
        assert answer.headers.get("etag") != tag
    kept = await drafts.ask("bob", "GET", "drafts/bobs")
    assert kept.json() == {"id": "bobs", "author": "bob", "title": SECRET, "hits": 7}
    assert kept.headers["etag"] == tag


async def test_lists_and_sums_are_of_ones_own_objects(drafts: Drafts) -> None:
    await drafts.put_bobs()
    await drafts.ask("ada", "PUT", "drafts/adas", json={"title": "mine", "hits": 1})
    mine = {"id": "adas", "author": "ada", "title": "mine", "hits": 1}
    listed = await drafts.ask("ada", "GET", "drafts")
    assert listed.json() == {"items": [mine], "next": None}
    by_ids = await drafts.ask("ada", "GET", "drafts?ids=bobs,adas,nobodys&fields=title")
    assert by_ids.json()["items"] == [{"id": "adas", "title": "mine"}]
    assert by_ids.json()["missing"] == ["bobs", "nobodys"]
    exported = await drafts.ask("ada", "GET", "drafts/export")
    assert [orjson.loads(line) for line in exported.text.splitlines()] == [mine]
    summed = await drafts.ask("ada", "POST", "drafts/query", json=SUM)
    assert summed.json()["items"] == [{"n": 1, "sum": 1}]
    scan = {**SUM, "allow_scan": True}
    everything = await drafts.ask("operator", "POST", "drafts/query", json=scan)
    assert everything.json()["items"] == [{"n": 2, "sum": 8}]
    await drafts.ask("ada", "DELETE", "drafts/adas")


WRITES: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("GET", "", {}),
    ("GET", "?fields=hits", {}),
    ("PUT", "?fields=hits", {"json": {"hits": 1}}),
    ("PATCH", "", {"json": {"title": "x"}, "headers": MERGE}),
    ("PATCH", "", {"json": {}, "headers": MERGE}),
    ("PATCH", "", {"json": [{"op": "test", "path": "/hits", "value": 7}], "headers": JSON_PATCH}),
    ("PATCH", "", {"json": {"hits": {"inc": 2**62}}, "headers": UPDATE}),
    ("PATCH", "", {"json": {"hits": {"set": 1}, "title": {"set": "x"}}, "headers": UPDATE}),
    ("DELETE", "", {}),
    ("DELETE", "?fields=hits", {}),
]


@pytest.mark.parametrize("condition", ["none", "any", "theirs", "other", "both", "not", "key"])
@pytest.mark.parametrize("class_name", ["drafts", "strict"])
async def test_an_object_of_somebody_else_is_answered_like_one_that_is_not_there(
    drafts: Drafts, condition: str, class_name: str
) -> None:
    theirs = await drafts.put_bobs()
    told = {
        "none": {},
        "any": {"if-match": "*"},
        "theirs": {"if-match": theirs},
        "other": {"if-match": theirs.replace(theirs[-3], "0" if theirs[-3] != "0" else "1")},
        "both": {"if-match": f'{theirs}, "other"'},
        "not": {"if-none-match": theirs},
        "key": {"idempotency-key": unique("key")},
    }[condition]
    for method, query, request in WRITES:
        if class_name == "strict" and "hits" in f"{query}{request}":
            continue
        headers = {**request.get("headers", {}), **told}
        answers = []
        for id_ in ("bobs", "nobodys"):
            path = f"{class_name}/{id_}{query}"
            answer = await drafts.ask("ada", method, path, **{**request, "headers": headers})
            body = {name: part for name, part in answer.json().items() if name != "instance"}
            shown = {k: v for k, v in answer.headers.items() if k not in VOLATILE}
            text = orjson.dumps([answer.status_code, body, shown]).decode()
            answers.append(text.replace(id_, "ID"))
        assert answers[0] == answers[1], (method, query)


VOLATILE: Final = {"x-request-id", "server-timing", "date", "content-length"}


async def test_an_object_belongs_to_who_creates_it_and_stays_so(drafts: Drafts) -> None:
    created = await drafts.ask("ada", "POST", "drafts", json={"title": "new"})
    assert created.status_code == 201
    assert created.json()["author"] == "ada"
    path = f"drafts/{created.json()['id']}"
    for request in (
        {"json": {"author": "bob"}, "headers": MERGE},
        {"json": [{"op": "replace", "path": "/author", "value": "bob"}], "headers": JSON_PATCH},
        {"json": {"author": {"set": "bob"}}, "headers": UPDATE},
    ):
        refused = await drafts.ask("ada", "PATCH", path, **request)
        assert refused.status_code == 403, refused.text
        assert refused.json()["scope"] == "admin"
    for body in ({"author": "bob"}, {"title": "x", "author": "bob"}):
        assert (await drafts.ask("ada", "PUT", path, json=body)).status_code == 403
    tag = (await drafts.ask("ada", "PUT", path, json={"title": "newer"})).headers["etag"]
    stale = {"if-match": created.headers["etag"]}
    assert (await drafts.ask("ada", "DELETE", path, headers=stale)).status_code == 412
    changed = await drafts.ask(
        "ada", "PATCH", path, json={"hits": {"inc": 2}}, headers={**UPDATE, "if-match": tag}
    )
    assert changed.json()["hits"] == 2
    shown = await drafts.ask("ada", "GET", f"{path}?fields=hits")
    assert shown.json() == {"hits": 2, "id": created.json()["id"]}
    seen = {"if-none-match": shown.headers["etag"]}
    assert (await drafts.ask("ada", "GET", f"{path}?fields=hits", headers=seen)).status_code == 304
    assert (await drafts.ask("ada", "DELETE", path)).status_code == 204


async def test_an_administrator_gives_an_object_away(drafts: Drafts) -> None:
    await drafts.ask("ada", "PUT", "drafts/given", json={"title": "x"})
    body = {"author": {"set": "bob"}}
    given = await drafts.ask("operator", "PATCH", "drafts/given", json=body, headers=UPDATE)
    assert given.status_code == 200
    assert (await drafts.ask("ada", "GET", "drafts/given")).status_code == 404
    assert (await drafts.ask("bob", "DELETE", "drafts/given")).status_code == 204
    unsaid = await drafts.ask("operator", "PUT", "drafts/unsaid", json={})
    assert unsaid.status_code == 400  # an administrator says whose it is


async def test_many_writes_at_once_lose_none(drafts: Drafts) -> None:
    """Each looks first and is bound to what it saw, and has to begin anew for the others."""
    await drafts.ask("ada", "PUT", "drafts/count", json={"hits": 0})
    body = {"title": {"set": "x"}, "hits": {"inc": 1}}
    answers = await asyncio.gather(
        *(drafts.ask("ada", "PATCH", "drafts/count", json=body, headers=UPDATE) for _ in range(8))
    )
    assert [answer.status_code for answer in answers] == [200] * 8
    assert (await drafts.ask("ada", "DELETE", "drafts/count?fields=title")).status_code == 200
    assert (await drafts.ask("ada", "GET", "drafts/count")).json()["hits"] == 8


async def test_a_key_of_idempotency_belongs_to_its_sender(drafts: Drafts) -> None:
    headers = {"idempotency-key": unique("key")}
    body = {"title": SECRET, "hits": 3}
    first = await drafts.ask("bob", "POST", "drafts", json=body, headers=headers)
    again = await drafts.ask("bob", "POST", "drafts", json=body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    hers = await drafts.ask("ada", "POST", "drafts", json=body, headers=headers)
    assert hers.status_code == 201
    assert hers.json()["id"] != first.json()["id"]
    assert "idempotency-replayed" not in hers.headers


async def test_an_import_and_a_batch_create_and_change_ones_own(drafts: Drafts) -> None:
    lines = b'{"id":"line","title":"l"}\n{"id":"other","author":"bob"}\n'
    summary = await drafts.ask("ada", "POST", "drafts/import", content=lines, headers=NDJSON)
    assert (summary.json()["imported"], summary.json()["failed"]) == (1, 1)
    operations: list[dict[str, Any]] = [
        {"op": "patch", "id": "line", "body": {"title": "m"}},
        {"op": "get", "id": "line"},
        {"op": "put", "class": "notes", "id": "free", "body": {}},
        {"op": "get", "class": "notes", "id": "free"},
        {"op": "delete", "id": "line"},
        {"op": "get", "id": "line"},
    ]
    answer = await drafts.ask("ada", "POST", "batch", **a_batch(*operations))
    assert [result["status"] for result in answer.json()] == [200, 200, 201, 200, 204, 404]


class Interrupted:
    """A data plane on which somebody else acts once, right after the next read."""

    def __init__(self, plane: DataPlane, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._plane = plane
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        try:
            return await self._plane.read(operation, preference)
        finally:
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile is not None:
                await meanwhile()


BOBS: Final = {"author": "bob", "title": SECRET}
OPERATIONS: Final[dict[str, Callable[[str, str], WriteOperation]]] = {
    "put": lambda db, op: Put(db, "drafts", "race", op, values={"author": "ada", "title": "a"}),
    "title": lambda db, op: Update(db, "drafts", "race", op, values={"title": "a"}),
    "hits": lambda db, op: Update(db, "drafts", "race", op, values={"hits": 1}),
    "both": lambda db, op: Update(db, "drafts", "race", op, values={"hits": 1, "title": "a"}),
    "read_modify_write": lambda db, op: ReadModifyWrite(
        db, "drafts", "race", op, compute=lambda shown: {**shown, "title": "a"}
    ),
    "delete": lambda db, op: Delete(db, "drafts", "race", op),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("before", ["ada", None])
async def test_a_write_that_was_overtaken_does_not_reach_the_next_owner(
    drafts: Drafts, name: str, before: str | None
) -> None:
    """Hers is deleted, and his created under the same id, between her look and her write."""
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


async def test_a_write_does_not_reach_what_was_given_away(drafts: Drafts) -> None:
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


async def test_a_write_to_another_system_is_bound_to_what_was_seen_there(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She is overtaken when the data plane has her write, and is about to set its intents."""
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


async def test_the_sketch_does_not_tell_when_objects_of_others_change(drafts: Drafts) -> None:
    accept = {"accept": "application/json"}
    told = await drafts.ask("ada", "GET", "sketch", headers=accept)
    assert set(told.json()["map"]) == {"notes"}
    everything = await drafts.ask("operator", "GET", "sketch", headers=accept)
    assert set(everything.json()["map"]) == {"notes", "drafts", "strict"}
