"""Runs survive what is done to the processes that carry them out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.writes.worker import WorkerProcess
from tests.process.service import field_on, scratch_catalogue, scratch_systems

PEOPLE = 40
CLASSES = {
    "people": {
        "fields": {
            "city": field_on("postgres"),
            "hits": field_on("redis", "integer", group="hits", default=0),
        }
    },
    "cities": {
        "fields": {
            "value": field_on("mongo"),
            "rows": field_on("mongo", "integer"),
            "share": field_on("mongo", "float"),
        }
    },
}
JOB = {
    "kind": "example.count",
    "spec": {"records": {"class": "people"}, "field": "city"},
    "into": {"class": "cities", "id": ["value"]},
}


@dataclass
class Plant:
    """A service, and what its workers need to know."""

    service: Service
    environment: dict[str, str]
    workers: list[WorkerProcess] = field(default_factory=list)

    async def hire(self) -> WorkerProcess:
        worker = WorkerProcess(self.environment)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        async with Connection(self.service.data) as http:
            answer = await http.request(method, f"/v1/town/{path}", body)
        assert answer.status < 300, answer
        return answer.json()

    async def reaches(self, run: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def reached() -> bool:
            found.update(await self.request("GET", f"jobs/{run}"))
            return found["state"] in states

        try:
            await eventually(reached)
        except TimeoutError:
            raise AssertionError(f"it does not reach {states}: {found}") from None
        return found


@pytest.fixture
async def plant(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tmp_path: Path,
) -> AsyncIterator[Plant]:
    settings = {"jobs_dir": str(tmp_path / "jobs"), "sketch": "off"}
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        Service.on(configs, url, redis_config.url, **settings).running() as service,
    ):
        await service.favour()
        await service.put_schema("town", CLASSES)
        environment = {
            "PORTOLAN_CATALOGUE_URL": url,
            "PORTOLAN_COORDINATION_URL": redis_config.url,
            "PORTOLAN_SPARK": "local[2,4]",
            "PORTOLAN_SPARK_CONF": orjson.dumps({"spark.sql.shuffle.partitions": "1"}).decode(),
            # A busy machine may hold up the heartbeats of a live worker for several seconds.
            "PORTOLAN_WORKER_LEASE_S": "10",
            **{f"PORTOLAN_{name.upper()}": value for name, value in settings.items()},
        }
        built = Plant(service, environment)
        people = [{"id": f"p{n}", "city": f"c{n % 4}"} for n in range(PEOPLE)]
        await built.request("POST", "people", people)
        try:
            yield built
        finally:
            for worker in built.workers:
                await worker.kill()


@pytest.mark.timeout(900)  # three processes of Spark start, on a machine that may be busy
async def test_a_run_outlives_its_worker_and_the_service(plant: Plant) -> None:
    """Its worker is killed while it reads, and the service while the next one goes on."""
    first = await plant.hire()
    run = (await plant.request("POST", "jobs", JOB))["id"]
    await plant.reaches(run, "forecasting")
    await first.kill()
    second = await plant.hire()

    async def is_taken_again() -> bool:
        return bool((await plant.request("GET", f"jobs/{run}"))["attempt"] == 2)

    await eventually(is_taken_again)
    await plant.service.kill()
    await plant.service.start()
    await plant.reaches(run, "running", "done", "failed")  # Spark has started: half of the time
    done = await plant.reaches(run, "done", "failed")
    assert done["state"] == "done", orjson.dumps(done).decode()
    assert done["attempt"] == 2
    rows = (await plant.request("GET", f"jobs/{run}/results"))["items"]
    assert rows == [{"value": f"c{n}", "rows": PEOPLE // 4, "share": 0.25} for n in range(4)]
    for n in range(4):
        written = await plant.request("GET", f"cities/c{n}")
        assert written == {"id": f"c{n}", "value": f"c{n}", "rows": 10, "share": 0.25}
    assert await second.stop() == 0


@pytest.mark.large
@pytest.mark.timeout(900)  # as above
async def test_a_run_outlives_the_spark_under_its_worker(plant: Plant) -> None:
    """The same process starts again, and executes the run; it was not visible before."""
    worker = await plant.hire()
    pid = worker.pid
    run = (await plant.request("POST", "jobs", JOB))["id"]

    async def has_read() -> bool:
        """Spark is started by the run, so it is known to be there only now."""
        stages = (await plant.request("GET", f"jobs/{run}")).get("stages", ())
        return any(stage["state"] == "done" for stage in stages)

    await eventually(has_read)
    worker.kill_spark()
    done = await plant.reaches(run, "done", "failed")
    assert done["state"] == "done", orjson.dumps(done).decode()
    assert (done["attempt"], worker.pid) == (2, pid)
    rows = (await plant.request("GET", f"jobs/{run}/results"))["items"]
    assert [row["rows"] for row in rows] == [PEOPLE // 4] * 4
    assert await worker.stop() == 0
