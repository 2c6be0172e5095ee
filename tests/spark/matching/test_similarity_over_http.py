"""People's decisions as a class: an edit over HTTP rematches the objects it concerns."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from benchmarks.harness.matching_data import PEOPLE_SPEC, households
from mediator.catalogue.runs import ENDED
from tests.faults.caching.http_client import Connection, Unanswered
from tests.faults.service import Service
from tests.faults.writes.worker import WorkerProcess

TEXT: Final = {"type": "string"}
DOCUMENTS: Final = {"type": "list", "items": "document"}
PERSON: Final = {
    "fields": {"household": TEXT, "code": TEXT, "name": TEXT, "born": {"type": "integer"}}
}
IDS: Final = {"type": "list", "items": "string"}
CLASSES: Final[Mapping[str, Any]] = {
    "left": PERSON,
    "right": PERSON,
    "decisions": {"fields": {"left": TEXT, "right": TEXT, "decision": TEXT}},
    "links": {
        "fields": {
            **dict.fromkeys(("left", "right"), IDS),
            **dict.fromkeys(("outcome", "why", "fingerprint"), TEXT),
            "similarity": {"type": "float"},
            **dict.fromkeys(("terms", "rejected"), DOCUMENTS),
        }
    },
}
SPEC: Final[Mapping[str, Any]] = {
    **PEOPLE_SPEC,
    **{name: {"class": name} for name in ("left", "right")},
    "lists": {"class": "decisions"},
    "partition": 40,
    "border": 1,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="portolan-") as name:
        yield Path(name).resolve()


@pytest.fixture
async def data(folder: Path) -> AsyncIterator[Connection]:
    """A service with two classes of people, and a worker."""
    arguments = ("--embedded", "--data-dir", str(folder))
    async with Service.embedded(folder).running() as service:
        await service.put_schema("town", CLASSES)
        worker = WorkerProcess({"PORTOLAN_SPARK": "local[2,4]"}, arguments)
        await worker.start()
        try:
            async with Connection(service.data) as data:
                yield data
        finally:
            await worker.kill()


async def load(data: Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    body = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    headers = {"content-type": "application/x-ndjson"}
    reply = await data.request("POST", f"/v1/town/{name}/import", body, headers)
    assert reply.status == 200, reply


async def run(data: Connection, **spec: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Execute a run that writes into the class `links`; return its rows by id, and its report."""
    job = {"kind": "matching.similarity", "spec": {**SPEC, **spec}, "into": {"class": "links"}}
    reply = await data.request("POST", "/v1/town/jobs", job)
    assert reply.status == 202, reply
    location = reply.headers["location"]
    while (status := (await data.request("GET", location)).json())["state"] not in ENDED:
        with suppress(Unanswered):  # a run can outlast the client's timeout
            await data.request("GET", location, None, {"accept": "text/event-stream"})
    assert status["state"] == "done", status
    lines = await data.request(
        "GET", f"{location}/results", None, {"accept": "application/x-ndjson"}
    )
    return {row["id"]: row for row in lines.lines()}, status["reports"].get("former", {})


@pytest.mark.large  # minutes: a service, a worker and their stores
@pytest.mark.timeout(1500)  # Spark starts and executes three runs, perhaps on a busy machine
async def test_an_edited_decision_rematches_the_objects_it_concerns(data: Connection) -> None:
    people = households(200, 1)
    await load(data, "left", people.left)
    await load(data, "right", people.right)
    first, _ = await run(data)
    row = next(row for row in first.values() if row["outcome"] == "similarity")
    (left,), (right,) = row["left"], row["right"]
    decision = {"left": left, "right": right, "decision": "cannot"}
    reply = await data.request("PUT", "/v1/town/decisions/1", decision)
    assert reply.status == 201, reply
    second, report = await run(data, former={"class": "links"})
    assert second[row["id"]]["right"] != [right]
    assert report["reused"] > 0
    assert {*report["reasons"]} == {"decisions"}
    unchanged = {id_ for id_, current in second.items() if current == first.get(id_)}
    assert len(unchanged) >= len(first) // 2
    reply = await data.request("DELETE", "/v1/town/decisions/1")
    assert reply.status == 204, reply
    third, report = await run(data, former={"class": "links"})
    assert third == first
    assert report["reused"] > 0
    assert report["matched"] < len(people.left) + len(people.right)
