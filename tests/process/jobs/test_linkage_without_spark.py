"""Small classes are linked over HTTP by a worker that never starts Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.harness.synthetic_people import people
from mediator.catalogue.runs import ENDED
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.writes.worker import WorkerProcess
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

FIELDS = ("given_name", "surname", "date_of_birth", "phone")
RESULT = ("cluster", "source", "record", "probability")
PEOPLE = list(people(40, 2, seed=5))


@pytest.fixture
async def service(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tmp_path: Path,
) -> AsyncIterator[tuple[Service, WorkerProcess]]:
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        Service.on(
            configs, url, redis_config.url, jobs_dir=str(tmp_path), sketch="off", relays="here"
        ).running() as running,
    ):
        await running.favour()
        settings = {
            "PORTOLAN_CATALOGUE_URL": url,
            "PORTOLAN_COORDINATION_URL": redis_config.url,
            "PORTOLAN_JOBS_DIR": str(tmp_path),
        }
        worker = WorkerProcess(settings)
        await worker.start()
        try:
            yield running, worker
        finally:
            await worker.kill()


def processes(worker: WorkerProcess) -> list[str]:
    """Return the programs that a worker runs."""
    return [child.name() for child in psutil.Process(worker.pid).children(recursive=True)]


@pytest.mark.timeout(600)  # a service and a worker start, on a machine that may be busy
async def test_two_classes_are_linked_into_a_third_one_and_no_program_is_started(
    service: tuple[Service, WorkerProcess],
) -> None:
    running, worker = service
    database = unique("study")
    classes = {
        name: {"fields": {field: field_on(system) for field in FIELDS}}
        for name, system in (("left", "postgres"), ("right", "mongo"))
    }
    result = {name: field_on("postgres") for name in RESULT[:-1]}
    result["probability"] = field_on("postgres", "float")
    await running.put_schema(database, {**classes, "clusters": {"fields": result}})
    programs: set[str] = set()
    async with Connection(running.data) as client:
        for index, person in enumerate(PEOPLE):
            class_name, body = "left" if index % 2 else "right", {f: person[f] for f in FIELDS}
            path = f"/v1/{database}/{class_name}/{person['id']}"
            values = {name: value for name, value in body.items() if value is not None}
            assert (await client.request("PUT", path, values)).status == 201
        spec = {
            "inputs": {name: {"class": name} for name in classes},
            "zero_config": True,
        }
        job = {"kind": "linkage.open", "spec": spec, "into": {"class": "clusters"}}
        run = (await client.request("POST", f"/v1/{database}/jobs", job)).json()

        async def has_ended() -> bool:
            programs.update(processes(worker))
            return (await get_run())["state"] in ENDED

        async def get_run() -> dict[str, Any]:
            answer = await client.request("GET", f"/v1/{database}/jobs/{run['id']}")
            document: dict[str, Any] = answer.json()
            return document

        await eventually(has_ended)
        finished_run = await get_run()
        stored = (await client.request("GET", f"/v1/{database}/clusters?limit=1000")).json()
    assert finished_run["state"] == "done", finished_run
    assert finished_run["rows"] == len(PEOPLE)
    assert {cluster["record"] for cluster in stored["items"]} == {person["id"] for person in PEOPLE}
    assert finished_run["reports"]["engine"]["engine"] == "local"
    assert finished_run["forecast"]["notes"][0].startswith("Engine local: ")
    assert programs == set()
