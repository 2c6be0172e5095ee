"""Drafts that belong to their authors, and requests of all callers to every route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    Delete,
    Get,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.routing.freshness import ANY, ReadPreference
from tests.process.caching.guarded import Guarded, bearer
from tests.process.service import field_on, unique

SECRET: Final = "what-only-bob-may-know"


RUN: Final = "0" * 32


FLOW_ID, VIEW_ID, QUERY_ID = "<flow>", "<view>", "<query>"
"""Placeholders in paths for an administrator's flow, view and query over the drafts."""


NDJSON: Final = {"content-type": "application/x-ndjson"}


MERGE: Final = {"content-type": "application/merge-patch+json"}


JSON_PATCH: Final = {"content-type": "application/json-patch+json"}


UPDATE: Final = {"content-type": "application/vnd.portolan.update+json"}


TITLE: Final = {"type": "string", "index": True}


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
        "notes": {"fields": {"title": TITLE, "draft": {"type": "reference", "to": "drafts"}}},
        "strict": {
            "owner_field": "author",
            "require_if_match": True,
            "fields": {
                "author": {"type": "string", "required": True, "index": True},
                "title": TITLE,
                "code": {**TITLE, "unique": True},
            },
        },
    }
}


@dataclass
class Drafts:
    """A database with Bob's objects, and the keys of the callers."""

    running: Guarded
    database: str
    ada: dict[str, str]
    bob: dict[str, str]
    operator: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    async def request(self, caller: str, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**getattr(self, caller), **request.pop("headers", {})}
        for name, id_ in self.ids.items():
            path = path.replace(name, id_)
        path = f"/v1/{self.database}/{path}"
        return await self.running.data.request(method, path, headers=headers, **request)

    async def put_bobs(self) -> str:
        """Reset Bob's objects to the state that tests expect; return the ETag of the draft."""
        body = {"title": SECRET, "hits": 7}
        answer = await self.request("bob", "PUT", "drafts/bobs", json=body)
        assert answer.status_code in (200, 201), answer.text
        strict = {"author": "bob", "title": SECRET}
        headers = {"if-none-match": "*"}
        await self.request("operator", "PUT", "strict/bobs", json=strict, headers=headers)
        return answer.headers["etag"]


async def fill(running: Guarded) -> Drafts:
    tenancy, database = running.container.mediator.tenancy, unique("db")
    await tenancy.own(running.owner, database)
    grants = ["read", "write", "jobs"]
    keys = [await tenancy.create_key(running.owner, name, grants) for name in ("ada", "bob")]
    ada, bob = (bearer(key["key"]) for key in keys)
    operator = await running.headers("operator", "write")
    await state_metrics(running)
    path = f"/admin/v1/schemas/{database}"
    answer = await running.admin.put(path, json=SCHEMA, headers=operator)
    assert answer.status_code == 200, answer.text
    route = running.container.mediator.data.model.databases[database].classes["drafts"]
    assert [fragment.system for fragment in route.fragments] == ["postgres", "redis"]
    drafts = Drafts(running, database, ada, bob, operator)
    await drafts.put_bobs()
    await drafts.request("operator", "PUT", "notes/n", json={"title": "n", "draft": "bobs"})
    await define(drafts)
    return drafts


async def define(drafts: Drafts) -> None:
    """Have an administrator define a flow, a view and a query over the drafts."""
    definitions = (
        (FLOW_ID, "message-flows", FLOW),
        (VIEW_ID, "incremental-views", {"class": "drafts"}),
        (QUERY_ID, "standing-queries", STANDING_QUERY),
    )
    for name, path, document in definitions:
        answer = await drafts.request("operator", "POST", path, json=document)
        assert answer.status_code == 201, answer.text
        drafts.ids[name] = answer.json()["id"]


async def state_metrics(running: Guarded) -> None:
    """State metrics so that `field_on` spreads a class over both systems."""
    control = running.container.mediator.control
    fast, slow = {"write_throughput": 1e6, "read_latency": 1e3}, {"write_throughput": 1.0}
    await control.amend("redis", metrics=fast)
    await control.amend("postgres", metrics={**slow, "read_latency": 1e-6})


def batch_request(*operations: dict[str, Any]) -> dict[str, Any]:
    complete = [{"class": "drafts", "id": "bobs", **operation} for operation in operations]
    return {"json": {"operations": complete}}


JOB: Final = {"kind": "example.count", "spec": {"records": {"class": "drafts"}, "field": "title"}}


FILTER: Final = {"eq": ["title", SECRET]}


SUM: Final = {"aggregate": {"compute": {"n": {"count": "*"}, "sum": {"sum": "hits"}}}}


# Ada's requests for Bob's object by route, with the status of the answer.
JOINED: Final = {"class": "notes", "join": {"as": "d", "class": "drafts", "on": {"id": "id"}}}
STANDING_QUERY: Final = {
    "relations": {"n": {"class": "notes"}, "d": {"class": "drafts"}},
    "predicates": [["n.id", "d.id"]],
    "window_s": 1,
}
FLOW: Final = {
    "latency_s": 1,
    "plan": [
        {"op": "receive", "attributes": {}},
        {"op": "invoke", "query": {"class": "drafts"}, "to": "found"},
    ],
}
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
        (409, "drafts/bobs?upsert=true", {"json": {"title": "mine"}, "headers": MERGE}),
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
    "PATCH /v1/{database}/{class}": [
        (200, f"drafts?title={SECRET}", {"json": {"title": "mine"}, "headers": MERGE}),
        (200, "drafts?all=true", {"json": {"hits": {"inc": 1}}, "headers": UPDATE}),
        (200, "strict?all=true", {"json": {"title": "mine"}, "headers": MERGE}),
    ],
    "DELETE /v1/{database}/{class}": [
        (200, f"drafts?title={SECRET}&dry_run=true", {}),
        (200, "drafts?hits.ge=0&allow_scan=true", {}),
        (200, "drafts?all=true", {}),
        (200, "strict?all=true", {}),
    ],
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
        (200, "batch", batch_request({"op": "get"})),
        (200, "batch", batch_request({"op": "put", "body": {}}, {"op": "get"}, {"op": "delete"})),
        (200, "batch", batch_request({"op": "patch", "body": {"title": "x"}}, {"op": "get"})),
        (200, "batch", batch_request({"op": "update", "body": {"hits": {"inc": 1}}})),
    ],
    "POST /v1/{database}/transactions": [
        (403, "transactions", batch_request({"op": "patch", "body": {"title": "x"}})),
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
    "GET /v1/{database}/openapi.json": [(200, "openapi.json", {})],
    "HEAD /v1/{database}/openapi.json": [(200, "openapi.json", {})],
    "GET /v1/{database}/sketch": [
        (403, "sketch?class=drafts", {}),
        (200, "sketch", {"headers": {"accept": "application/json"}}),
    ],
    "HEAD /v1/{database}/sketch": [(403, "sketch?class=drafts", {})],
    "GET /v1/{database}/message-flows": [(200, "message-flows", {})],
    "POST /v1/{database}/message-flows": [(403, "message-flows", {"json": FLOW})],
    "GET /v1/{database}/message-flows/{flow}": [
        (403, f"message-flows/{FLOW_ID}", {}),
    ],
    "DELETE /v1/{database}/message-flows/{flow}": [
        (403, f"message-flows/{FLOW_ID}", {}),
    ],
    "POST /v1/{database}/message-flows/{flow}/messages": [
        (403, f"message-flows/{FLOW_ID}/messages", {"json": {"messages": [{}]}}),
    ],
    "GET /v1/{database}/message-flows/{flow}/messages/{ticket}": [
        (403, f"message-flows/{FLOW_ID}/messages/{RUN}", {}),
    ],
    "GET /v1/{database}/message-flows/{flow}/results": [
        (403, f"message-flows/{FLOW_ID}/results", {}),
    ],
    "GET /v1/{database}/message-flows/{flow}/dead-letters": [
        (403, f"message-flows/{FLOW_ID}/dead-letters", {}),
    ],
    "POST /v1/{database}/message-flows/{flow}/replay": [
        (403, f"message-flows/{FLOW_ID}/replay", {}),
    ],
    "GET /v1/{database}/incremental-views": [(200, "incremental-views", {})],
    "POST /v1/{database}/incremental-views": [
        (403, "incremental-views", {"json": {"class": "drafts"}}),
        (403, "incremental-views", {"json": JOINED}),
    ],
    "GET /v1/{database}/incremental-views/{view}": [(403, f"incremental-views/{VIEW_ID}", {})],
    "DELETE /v1/{database}/incremental-views/{view}": [(403, f"incremental-views/{VIEW_ID}", {})],
    "GET /v1/{database}/incremental-views/{view}/result": [
        (403, f"incremental-views/{VIEW_ID}/result", {}),
    ],
    "GET /v1/{database}/incremental-views/{view}/deltas": [
        (403, f"incremental-views/{VIEW_ID}/deltas", {}),
    ],
    "GET /v1/{database}/standing-queries": [(200, "standing-queries", {})],
    "POST /v1/{database}/standing-queries": [
        (403, "standing-queries", {"json": STANDING_QUERY}),
    ],
    "GET /v1/{database}/standing-queries/plan": [(403, "standing-queries/plan", {})],
    "GET /v1/{database}/standing-queries/{query}": [(403, f"standing-queries/{QUERY_ID}", {})],
    "DELETE /v1/{database}/standing-queries/{query}": [(403, f"standing-queries/{QUERY_ID}", {})],
    "GET /v1/{database}/standing-queries/{query}/results": [
        (403, f"standing-queries/{QUERY_ID}/results", {}),
    ],
    "GET /v1/{database}/event-streams": [(200, "event-streams", {})],
    "POST /v1/{database}/event-streams": [
        (409, "event-streams", {"json": {"name": "drafts", "attributes": ["title"]}}),
    ],
    "GET /v1/{database}/event-streams/{stream}": [(404, "event-streams/drafts", {})],
    "DELETE /v1/{database}/event-streams/{stream}": [(404, "event-streams/drafts", {})],
    "POST /v1/{database}/event-streams/{stream}/tuples": [
        (404, "event-streams/drafts/tuples", {"json": {"tuples": [{"time_s": 0, "values": {}}]}}),
    ],
    "GET /v1/{database}/event-streams/{stream}/tuples": [(404, "event-streams/drafts/tuples", {})],
    "POST /v1/{database}/jobs": [(403, "jobs", {"json": JOB})],
    "GET /v1/{database}/jobs": [(200, "jobs", {})],
    "GET /v1/{database}/jobs/{run}": [(404, f"jobs/{RUN}", {})],
    "DELETE /v1/{database}/jobs/{run}": [(404, f"jobs/{RUN}", {})],
    "POST /v1/{database}/jobs/{run}/resume": [(404, f"jobs/{RUN}/resume", {})],
    "GET /v1/{database}/jobs/{run}/results": [(404, f"jobs/{RUN}/results", {})],
}


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


VOLATILE: Final = {"x-request-id", "server-timing", "date", "content-length"}


class Interrupted:
    """A data plane on which another client acts once, directly after the next read."""

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
        db, "drafts", "race", op, compute=lambda document: {**document, "title": "a"}
    ),
    "delete": lambda db, op: Delete(db, "drafts", "race", op),
}
