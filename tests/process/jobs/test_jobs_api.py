"""Jobs over HTTP: submitted, shown, followed, cancelled, resumed; results in pages and files.

The test acts as the worker, so that no Spark is needed.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.api.router import DataApi
from mediator.catalogue.run_queue import RunQueue
from tests.process.caching.newspaper import assert_problem
from tests.process.jobs.idle_worker import idle_worker
from tests.process.jobs.office import ROWS, Office
from tests.process.operation.asgi_driver import send_raw
from tests.process.service import Service, field_on, scratch_catalogue, service, unique

STREAM = {
    "left": {"class": "people"},
    "right": {"class": "towns"},
    "threshold": 0.8,
    "mode": "stream",
}
FIELDS = {"city": field_on("postgres"), "age": field_on("redis", "integer")}


@pytest.fixture(scope="module")
async def prepared(mediator: Service) -> tuple[Service, str]:
    cities = {
        "value": field_on("mongo"),
        "rows": field_on("mongo", "integer"),
        "share": field_on("mongo", "float"),
    }
    classes = {
        "people": {"fields": FIELDS},
        "cities": {"fields": cities},
        "texts": {"fields": {**cities, "share": field_on("mongo")}},
        "towns": {"fields": {**cities, "country": field_on("mongo", required=True)}},
    }
    return mediator, await mediator.put_schema(classes)


@pytest.fixture
async def office(prepared: tuple[Service, str], tmp_path: Path) -> AsyncIterator[Office]:
    service_, database = prepared
    await service_.mediator.workers.heartbeat("test", None)
    await _empty(service_.mediator.queue)
    instance = Office(service_.mediator, database, tmp_path)
    yield instance
    await instance.client.aclose()
    await _empty(service_.mediator.queue)


async def _empty(queue: RunQueue) -> None:
    """The catalogue is shared: other tests may have left runs in the queue."""
    while taken_run := await queue.take(60):
        await queue.end(taken_run, "cancelled", {}, {})


async def test_a_run_from_its_submission_to_its_result(office: Office) -> None:
    run = await office.submit()
    assert (run["state"], run["job"]) == ("queued", office.job())
    taken_run = await office.take()
    progress = {"stages": [], "counters": {"pairs": 7}, "eta_s": 1.5, "log": ["x"]}
    await office.mediator.queue.heartbeat(taken_run, "running", progress, 60)
    document = (await office.client.get(f"jobs/{run['id']}")).json()
    assert (document["state"], document["counters"], document["eta_s"]) == (
        "running",
        {"pairs": 7},
        1.5,
    )
    early = await office.client.get(f"jobs/{run['id']}/results")
    assert assert_problem(early, 409, "conflict")["state"] == "running"
    await office.finish(taken_run)
    assert (await office.client.get(f"jobs/{run['id']}")).json()["rows"] == ROWS


async def test_results_in_pages(office: Office) -> None:
    run, address = await office.submit(), ""
    await office.finish(await office.take())
    address = f"jobs/{run['id']}/results"
    numbers: list[int] = []
    after: dict[str, str] = {}
    while True:
        answer = await office.client.get(address, params={"limit": "7", **after})
        page = answer.json()
        numbers += [row["n"] for row in page["items"]]
        if page["next"] is None:
            assert "link" not in answer.headers
            break
        assert answer.links["next"]["url"].endswith(f"{address}?after={page['next']}&limit=7")
        after = {"after": page["next"]}
    assert numbers == list(range(ROWS))
    forged = await office.client.get(address, params={"after": after["after"][:-2] + "AA"})
    assert_problem(forged, 400, "invalid", "after")
    other = await office.submit()
    await office.finish(await office.take())
    stolen = await office.client.get(f"jobs/{other['id']}/results", params=after)
    assert_problem(stolen, 400, "invalid", "after")
    too_large = await office.client.get(address, params={"limit": "11"})
    assert_problem(too_large, 400, "invalid", "limit")


async def test_results_as_files(office: Office) -> None:
    run = await office.submit()
    await office.finish(await office.take())
    bodies = {}
    for type_ in (
        "text/csv",
        "application/x-ndjson",
        "application/vnd.apache.parquet",
        "application/vnd.apache.arrow.stream",
    ):
        answer = await office.client.get(f"jobs/{run['id']}/results", headers={"accept": type_})
        assert answer.headers["content-type"] == type_
        bodies[type_.rpartition("/")[2]] = answer.content
    table = pq.read_table(io.BytesIO(bodies["vnd.apache.parquet"]))
    assert table.num_rows == ROWS
    assert pa.ipc.open_stream(bodies["vnd.apache.arrow.stream"]).read_all().equals(table)
    assert len(bodies["csv"].splitlines()) == ROWS + 1
    assert [orjson.loads(line) for line in bodies["x-ndjson"].splitlines()] == table.to_pylist()
    refused = await office.client.get(
        f"jobs/{run['id']}/results", headers={"accept": "application/xml"}
    )
    assert_problem(refused, 406, "not-acceptable")


async def test_reading_results_stops_once_their_client_has_gone(office: Office) -> None:
    run = await office.submit()
    await office.finish(await office.take())
    path = f"/v1/{office.database}/jobs/{run['id']}/results".encode()
    accept = [(b"accept", b"application/x-ndjson")]
    complete = await send_raw(office.app, "GET", path, headers=accept)
    assert (complete.complete, len(complete.body.splitlines())) == (True, ROWS)
    partial = await send_raw(office.app, "GET", path, headers=accept, stays=False)
    assert (partial.complete, len(partial.body.splitlines())) == (False, 10), (
        "the rows of the first file"
    )


async def test_results_that_are_gone(office: Office) -> None:
    run = await office.submit()
    taken_run = await office.take()
    await office.mediator.queue.end(taken_run, "done", {}, {"rows": 1, "result": "000001-x"})
    assert_problem(await office.client.get(f"jobs/{run['id']}/results"), 410, "gone")


async def test_a_dry_run_has_no_result(office: Office) -> None:
    answer = await office.client.post("jobs?dry_run=true", json=office.job())
    assert answer.json()["dry_run"]
    taken_run = await office.take()
    assert taken_run.dry_run
    await office.mediator.queue.end(taken_run, "done", {}, {"forecast": {"rows": {"records": 1}}})
    run = (await office.client.get(f"jobs/{taken_run.id}")).json()
    assert run["forecast"] == {"rows": {"records": 1}}
    answer = await office.client.get(f"jobs/{taken_run.id}/results")
    assert "dry run" in assert_problem(answer, 409, "conflict")["detail"]
    assert_problem(
        await office.client.post("jobs?dry_run=1", json=office.job()), 400, "invalid", "dry_run"
    )


async def test_a_key_makes_one_run(office: Office) -> None:
    key = unique("k")
    answers = [
        await office.client.post("jobs", json=office.job(), headers={"idempotency-key": key})
        for _ in "12"
    ]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert "idempotency-replayed" not in answers[0].headers
    assert answers[1].headers["idempotency-replayed"] == "true"
    other = await office.client.post(
        "jobs", json=office.job(field="age"), headers={"idempotency-key": key}
    )
    assert_problem(other, 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({"kind": "example.none", "spec": {}}, "/kind"),
        ({"kind": "example.count", "spec": {}}, "/spec/records"),
        ({"spec": {"records": {"file": "/etc/passwd", "format": "csv"}}}, "/spec/records"),
        ({"spec": {"records": {"class": "nobody"}}}, "/spec/records"),
        ({"spec": {"records": {"class": "people", "database": "other"}}}, "/spec/records"),
        ({"spec": {"records": {"class": "people"}, "field": "size"}}, "/spec/records"),
        (
            {"spec": {"records": {"class": "people", "filter": {"eq": ["size", 1]}}}},
            "/spec/records/filter/eq/0",
        ),
        ({"spec": {"records": {"class": "people", "rename": {"town": "city"}}}}, "/spec/records"),
        ({"spec": {"records": {"class": "people", "rename": {"age": "city"}}}}, "/spec/records"),
        (
            {"spec": {"records": {"class": "people", "rename": {"age": "id"}}}},
            "/spec/records/rename",
        ),
        (
            {"spec": {"records": {"class": "people", "rename": {"age": "a", "city": "a"}}}},
            "/spec/records/rename",
        ),
        ({"limits": {"rows": "many"}}, "/limits/rows"),
        ({"kind": "linkage.private", "spec": STREAM}, "/spec/mode"),
        ({"spec": {"records": {"class": "people"}, "field": "a\0"}}, ""),
    ],
)
async def test_mistakes_have_their_location(
    office: Office, job: dict[str, Any], pointer: str
) -> None:
    document = {"kind": "example.count", "spec": office.job()["spec"]} | job
    if "kind" not in job and "spec" in job:
        document["spec"] = {"field": "city", **job["spec"]}
    assert_problem(await office.client.post("jobs", json=document), 400, "invalid", pointer)


@pytest.mark.parametrize(
    ("into", "pointer", "reason"),
    [
        ({"class": "nowhere"}, "/into/class", "there is no class nowhere"),
        ({"class": "cities"}, "/into/id", "no column id"),
        ({"class": "people", "id": ["value"]}, "/into/class", "no field share"),
        ({"class": "texts", "id": ["value"]}, "/into/class", "texts.share is of type string"),
        ({"class": "towns", "id": ["value"]}, "/into/class", "towns.country is required"),
    ],
)
async def test_a_result_that_does_not_fit_its_class_is_refused_when_it_is_submitted(
    office: Office, into: dict[str, Any], pointer: str, reason: str
) -> None:
    answer = await office.client.post("jobs", json=office.job() | {"into": into})
    problem = assert_problem(answer, 400, "invalid", pointer)
    assert reason in problem["errors"][-1]["detail"]
    fits = office.job() | {"into": {"class": "cities", "id": ["value"]}}
    assert (await office.client.post("jobs", json=fits)).status_code == 202


async def test_unknown_runs_are_not_found(office: Office) -> None:
    for id_ in ("0" * 32, "x", "%00", "..%2f"):
        for method, tail in (("GET", ""), ("DELETE", ""), ("POST", "/resume"), ("GET", "/results")):
            path = f"/v1/{office.database}/jobs/{id_}{tail}".encode()
            assert (await send_raw(office.app, method, path)).status == 404, (id_, tail)
    unknown = await send_raw(office.app, "GET", f"/v1/{office.database}/jobs/{'0' * 32}/x".encode())
    assert unknown.json()["type"] == "/problems/route-not-found"
    assert_problem(
        await office.client.post("http://test/v1/nowhere/jobs", json={}), 404, "not-found"
    )
    assert_problem(await office.client.get("http://test/v1/nowhere/jobs"), 404, "not-found")
    assert_problem(await office.client.put("jobs", json={}), 405, "method-not-allowed")


async def test_runs_are_listed_newest_first(office: Office) -> None:
    ids = [(await office.submit())["id"] for _ in range(5)]
    answer = await office.client.get("jobs", params={"limit": "3"})
    first = answer.json()
    second = (await office.client.get("jobs", params={"limit": "2", "after": first["next"]})).json()
    linked = await office.client.get(f"http://test{answer.links['next']['url']}")
    assert linked.json()["items"][:2] == second["items"]
    assert [run["id"] for run in (*first["items"], *second["items"])] == ids[::-1]
    assert "job" not in first["items"][0]


async def test_cancelling_and_resuming(office: Office) -> None:
    run = await office.submit()
    taken_run = await office.take()
    cancelled = await office.client.delete(f"jobs/{run['id']}")
    assert (cancelled.status_code, cancelled.json()["cancelling"]) == (202, True)
    await office.mediator.queue.end(taken_run, "cancelled", {}, {})
    ended = await office.client.delete(f"jobs/{run['id']}")
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
    resumed = await office.client.post(f"jobs/{run['id']}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
    await office.finish(await office.take())
    assert_problem(await office.client.post(f"jobs/{run['id']}/resume"), 409, "conflict")
    assert_problem(await office.client.delete(f"jobs/{run['id']}"), 409, "conflict")


async def test_a_run_is_followed_to_its_end(office: Office) -> None:
    run = await office.submit()
    path = f"/v1/{office.database}/jobs/{run['id']}".encode()
    following = asyncio.create_task(read_events(office.app, path))
    taken_run = await office.take()
    await office.mediator.queue.heartbeat(taken_run, "running", {"counters": {"pairs": 1}}, 60)
    await office.finish(taken_run)
    events = [orjson.loads(event) for event in await following]
    assert events[-1]["state"] == "done"
    assert events[-1]["rows"] == ROWS


async def test_streams_end_with_the_service(office: Office) -> None:
    run = await office.submit()
    path = f"/v1/{office.database}/jobs/{run['id']}".encode()
    following = asyncio.create_task(read_events(office.app, path))
    office.app.end_streams()
    assert len(await following) == 1


async def read_events(app: DataApi, path: bytes) -> list[bytes]:
    """Return the data of the events of a run until its stream ends."""
    body = bytearray()

    async def receive() -> dict[str, Any]:
        if not body:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        body.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": path,
        "query_string": b"",
        "headers": [(b"accept", b"text/event-stream")],
    }
    async with asyncio.timeout(60):
        await app(scope, receive, send)
    return [data for event in bytes(body).split(b"\n\n") if (data := event.partition(b"data: ")[2])]


async def test_without_a_worker_jobs_are_refused(
    mediator: Service, postgresql_config: Any, tmp_path: Path
) -> None:
    async with (
        scratch_catalogue(postgresql_config) as url,
        service([mediator.configs["postgres"]], url) as instance,
    ):
        database = await instance.put_schema({"people": {"fields": {"city": {"type": "string"}}}})
        office = Office(instance.mediator, database, tmp_path)
        answer = await office.client.post("jobs", json=office.job())
        problem = assert_problem(answer, 503, "unavailable")
        assert problem["system"] == "spark"
        assert "portolan worker" in problem["detail"]
        assert int(answer.headers["retry-after"]) > 1
        await instance.mediator.workers.heartbeat("w", "Spark cannot run: java is not on PATH.")
        answer = await office.client.post("jobs", json=office.job())
        assert "java is not on PATH" in assert_problem(answer, 503, "unavailable")["detail"]
        await office.client.aclose()


async def test_the_service_never_imports_spark(
    mediator: Service, prepared: tuple[Service, str]
) -> None:
    """In a separate process, as this one may have imported it."""
    code = f"""
import asyncio, sys
from app.service.container import build
from app.settings.main import HttpSettings, MediatorSettings
from tests.process.operation.asgi_driver import send_raw

async def main():
    container = await build(HttpSettings(), MediatorSettings(relays="here"))
    body = b'{{"kind":"example.count","spec":{{"records":{{"class":"people"}},"field":"city"}}}}'
    answer = await send_raw(container.data._data, "POST", b"/v1/{prepared[1]}/jobs", pieces=[body],
        headers=[(b"content-type", b"application/json")])
    assert answer.status == 202, answer
    path = answer.headers["location"].encode()
    await send_raw(container.data._data, "GET", path + b"/results")
    await send_raw(container.data._data, "DELETE", path)
    await container.stop()
    assert "pyspark" not in sys.modules

asyncio.run(main())
"""
    environment = {**os.environ, "PORTOLAN_CATALOGUE_URL": mediator.catalogue_url}
    async with idle_worker(mediator.mediator.workers):
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert process.returncode == 0, process.stderr[-3_000:]
