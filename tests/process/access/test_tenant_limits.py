"""Limits of tenants in a running service: size, cost, time, runs, storage."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.faults.conditions import eventually
from tests.process.access.bounded import GENERAL_BYTES, Bounded
from tests.process.caching.newspaper import assert_problem

NDJSON = {"content-type": "application/x-ndjson"}
MERGE = {"content-type": "application/merge-patch+json"}


async def test_the_size_of_a_body(bounded: Bounded) -> None:
    assert (await bounded.put("a", "x" * 300)).status_code == 201
    general = await bounded.put("a", "x" * GENERAL_BYTES)
    assert assert_problem(general, 413, "body-too-large")["limit_bytes"] == GENERAL_BYTES
    assert await bounded.refusals("body_bytes") == 1
    await bounded.limit(body_bytes=200)
    refused = await bounded.put("a", "x" * 300)
    assert assert_problem(refused, 413, "body-too-large")["limit_bytes"] == 200
    assert await bounded.refusals("body_bytes") == 2
    assert (await bounded.put("a", "x" * 100)).status_code == 200
    lines = b'{"id":"b","title":"short"}\n{"id":"c","title":"' + b"x" * 300 + b'"}\n'
    answer = await bounded.request("POST", "notes/import", content=lines, headers=NDJSON)
    assert (answer.json()["imported"], answer.json()["failed"]) == (1, 1)
    assert answer.json()["problems"][0]["limit_bytes"] == 200
    await bounded.limit(body_bytes=2 * GENERAL_BYTES)
    assert (await bounded.put("a", "x" * GENERAL_BYTES)).status_code == 200


async def test_the_cost_and_the_time_of_a_query(bounded: Bounded) -> None:
    for number in range(5):
        await bounded.put(str(number))
    assert len((await bounded.request("GET", "notes")).json()["items"]) == 5
    await bounded.limit(query_rows=3)
    problem = assert_problem(await bounded.request("GET", "notes"), 422, "too-costly")
    assert (problem["rows"], problem["limit"]) == (3, "query_rows")
    assert (await bounded.request("GET", "notes/export")).status_code == 422
    assert len((await bounded.request("GET", "notes?limit=2")).json()["items"]) == 2
    await bounded.limit(query_seconds=1e-9)
    problem = assert_problem(await bounded.request("GET", "notes"), 422, "too-costly")
    assert (problem["seconds"], problem["limit"]) == (1e-9, "query_seconds")
    assert await bounded.refusals("query_rows") == 2
    await bounded.limit()
    assert (await bounded.request("GET", "notes")).status_code == 200


async def test_the_rate_of_examined_rows_is_limited(bounded: Bounded) -> None:
    for number in range(20):
        await bounded.put(str(number))
    await bounded.limit(rows_rate=0.001)
    assert len((await bounded.request("GET", "notes")).json()["items"]) == 20
    refused = await bounded.request("GET", "notes")
    problem = assert_problem(refused, 429, "too-many-requests")
    assert problem["limit"] == "rows_rate"
    assert int(refused.headers["retry-after"]) > 10_000
    assert (await bounded.request("GET", "notes/export")).status_code == 429
    assert (await bounded.put("1", "written")).status_code == 200
    assert (await bounded.request("GET", "notes/1")).json()["title"] == "written"
    assert await bounded.refusals("rows_rate") == 2
    await bounded.limit()
    assert (await bounded.request("GET", "notes")).status_code == 200


async def test_an_export_waits_for_its_rate_of_rows(bounded: Bounded) -> None:
    lines = b"".join(b'{"id":"%d"}\n' % number for number in range(900))
    await bounded.request("POST", "notes/import", content=lines, headers=NDJSON)
    # The credit of ten seconds is less than the first page; the last page costs as much again.
    await bounded.limit(rows_rate=42)
    exported = await bounded.request("GET", "notes/export")
    assert len(exported.text.splitlines()) == 900
    assert (await bounded.request("GET", "notes/export")).status_code == 429


async def is_broken_off(bounded: Bounded, path: str, accept: bytes) -> bool:
    """Return whether an answer has started, and is not complete."""
    messages: list[dict[str, Any]] = []
    key = bounded.key["authorization"].encode()
    path, _, query = f"/v1/{bounded.database}/{path}".partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"accept", accept), (b"authorization", key)],
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        messages.append(message)

    await bounded.running.container.data(scope, receive, send)
    assert messages[0]["status"] == 200
    return bool(messages[-1].get("more_body", messages[-1]["type"] == "http.response.start"))


async def test_the_time_of_a_stream(bounded: Bounded) -> None:
    await bounded.put("a")
    assert not await is_broken_off(bounded, "notes/export", b"application/x-ndjson")
    await bounded.limit(stream_seconds=1e-9)
    assert await is_broken_off(bounded, "notes/export", b"application/x-ndjson")
    assert await is_broken_off(bounded, "changes", b"text/event-stream")
    lines = b'{"id":"b"}\n{"id":"c"}\n'
    refused = await bounded.request("POST", "notes/import", content=lines, headers=NDJSON)
    problem = assert_problem(refused, 429, "too-many-requests")
    assert (problem["limit"], problem["imported"], problem["next"]) == ("stream_seconds", 2, 2)
    assert (await bounded.put("d")).status_code == 201


async def test_runs_under_way(bounded: Bounded) -> None:
    await bounded.limit(runs=1)
    job = {"kind": "example.count", "spec": {"records": {"class": "notes"}, "field": "title"}}
    answers = await asyncio.gather(*(bounded.request("POST", "jobs", json=job) for _ in range(2)))
    accepted, rejected = sorted(answers, key=lambda answer: answer.status_code)
    assert (accepted.status_code, rejected.status_code) == (202, 429)
    await bounded.request("DELETE", f"jobs/{accepted.json()['id']}")
    keyed = {"idempotency-key": "first"}
    first = await bounded.request("POST", "jobs", json=job, headers=keyed)
    assert first.status_code == 202, first.text
    run = f"jobs/{first.json()['id']}"
    refused = await bounded.request("POST", "jobs", json=job)
    assert assert_problem(refused, 429, "too-many-requests")["limit"] == "runs"
    repeated = await bounded.request("POST", "jobs", json=job, headers=keyed)
    assert (repeated.status_code, repeated.headers["idempotency-replayed"]) == (202, "true")
    assert (await bounded.request("DELETE", run)).status_code == 200
    other = await bounded.request("POST", "jobs", json=job)
    assert other.status_code == 202
    assert (await bounded.request("POST", f"{run}/resume")).status_code == 429
    assert (await bounded.request("DELETE", f"jobs/{other.json()['id']}")).status_code == 200
    assert (await bounded.request("POST", f"{run}/resume")).status_code == 202
    assert (await bounded.request("DELETE", run)).status_code == 200


async def test_a_run_that_writes_into_a_class_needs_room(bounded: Bounded) -> None:
    await bounded.limit(objects=2)
    spec = {"records": {"class": "notes"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec, "into": {"class": "counts", "id": ["value"]}}
    submitted = await bounded.request("POST", "jobs", json=job)
    assert submitted.status_code == 202, submitted.text
    for id_ in "ab":
        await bounded.put(id_)
    assert_full(await bounded.request("POST", "jobs", json=job))
    run = f"jobs/{submitted.json()['id']}"
    assert (await bounded.request("DELETE", run)).status_code == 200
    assert_full(await bounded.request("POST", f"{run}/resume"))


def assert_full(answer: httpx.Response) -> None:
    problem = assert_problem(answer, 507, "insufficient-storage")
    assert (problem["limit"], problem["objects"]) == ("objects", 2)


async def test_the_number_of_stored_objects(bounded: Bounded) -> None:
    await bounded.limit(objects=2)
    assert (await bounded.put("a")).status_code == 201
    keyed = {"json": {"id": "b", "title": "x"}, "headers": {"idempotency-key": "made"}}
    assert (await bounded.request("POST", "notes", **keyed)).status_code == 201
    assert_full(await bounded.put("c"))
    assert_full(await bounded.put("c", headers={"if-none-match": "*"}))
    assert_full(await bounded.put("b", headers={"if-none-match": "*"}))
    assert_full(await bounded.request("POST", "notes", json={"title": "x"}))
    assert_full(await bounded.request("PUT", "strict/c", json={}))
    repeated = await bounded.request("POST", "notes", **keyed)
    assert (repeated.status_code, repeated.headers["idempotency-replayed"]) == (201, "true")
    assert (await bounded.put("b", "replaced")).status_code == 200
    assert (await bounded.put("b", "more", headers={"if-match": "*"})).status_code == 200
    patched = await bounded.request("PATCH", "notes/b", json={"title": "y"}, headers=MERGE)
    assert patched.status_code == 200
    assert (await bounded.request("GET", "notes/c")).status_code == 404
    assert await bounded.refusals("objects") == 5
    assert (await bounded.request("DELETE", "notes/a")).status_code == 204
    assert (await bounded.put("c")).status_code == 201
    assert_full(await bounded.put("d"))
    headers = await bounded.running.headers("operator", "write")
    path = f"/v1/{bounded.database}/notes/e"
    operators_put = await bounded.running.data.put(path, json={}, headers=headers)
    assert operators_put.status_code == 201  # the operator has no limits
    await bounded.limit(objects=4)
    assert (await bounded.put("d")).status_code == 201


async def test_concurrent_requests_respect_the_limit_of_objects(bounded: Bounded) -> None:
    await bounded.limit(objects=3)
    answers = await asyncio.gather(*(bounded.put(str(number)) for number in range(20)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] * 3 + [507] * 17


async def test_the_limit_of_objects_holds_for_batches_and_imports(bounded: Bounded) -> None:
    await bounded.limit(objects=2)
    puts = [{"op": "put", "class": "notes", "id": id_, "body": {}} for id_ in "abca"]
    answer = await bounded.request("POST", "batch", json={"operations": puts})
    assert [result["status"] for result in answer.json()] == [201, 201, 507, 200]
    lines = b'{"id":"a"}\n{"id":"d"}\n{"id":"e"}\n'
    refused = await bounded.request("POST", "notes/import", content=lines, headers=NDJSON)
    assert_full(refused)
    assert (refused.json()["imported"], refused.json()["next"]) == (1, 1)
    two = await bounded.request("POST", "notes", json=[{"id": "d"}, {"id": "e"}])
    assert [result["status"] for result in two.json()] == [507, 507]
    assert len((await bounded.request("GET", "notes")).json()["items"]) == 2


async def test_the_limit_of_objects_holds_for_transactions(bounded: Bounded) -> None:
    await bounded.limit(objects=2)
    operations: list[dict[str, Any]] = [
        {"op": "put", "class": "notes", "id": id_, "body": {}} for id_ in "ab"
    ]
    keyed = {"json": {"operations": operations}, "headers": {"idempotency-key": "both"}}
    assert (await bounded.request("POST", "transactions", **keyed)).status_code == 200
    repeated = await bounded.request("POST", "transactions", **keyed)
    assert repeated.headers["idempotency-replayed"] == "true"
    put = {"op": "put", "class": "notes", "id": "c", "body": {}}
    assert_full(await bounded.request("POST", "transactions", json={"operations": [put]}))
    swap = [{"op": "delete", "class": "notes", "id": "a"}, operations[1]]
    answer = await bounded.request("POST", "transactions", json={"operations": swap})
    assert answer.status_code == 200, answer.text
    assert (await bounded.put("c")).status_code == 201


async def test_objects_created_by_the_operator_are_counted(bounded: Bounded) -> None:
    headers = await bounded.running.headers("operator", "write")
    for id_ in "ab":
        path = f"/v1/{bounded.database}/notes/{id_}"
        await bounded.running.data.put(path, json={}, headers=headers)
    security = bounded.running.container.context.security
    assert security is not None
    await bounded.limit(objects=2)
    security.stored.due_s = 0.0  # otherwise the count is up to half a minute late

    async def is_counted() -> bool:
        return await bounded.figure("portolan_tenant_objects") == 2

    await eventually(is_counted)
    assert_full(await bounded.put("c"))


@pytest.mark.parametrize("limits", [{"objects": -1}, {"runs": 0}, {"query_seconds": 0}, {"x": 1}])
async def test_invalid_limits_are_refused(bounded: Bounded, limits: dict[str, Any]) -> None:
    headers = await bounded.running.headers("operator", "admin")
    path = f"/admin/v1/tenants/{bounded.tenant}"
    refused = await bounded.running.admin.put(path, json={"limits": limits}, headers=headers)
    assert refused.status_code == 400
    [name] = limits
    assert refused.json()["errors"][0]["pointer"] == f"/limits/{name}"
