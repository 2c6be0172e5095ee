"""Runs survive faults of the processes that execute them."""

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
class Deployment:
    """A service, its workers and their environment."""

    service: Service
    environment: dict[str, str]
    workers: list[WorkerProcess] = field(default_factory=list)

    async def start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(self.environment)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        async with Connection(self.service.data) as http:
            response = await http.request(method, f"/v1/town/{path}", body)
        assert response.status < 300, response
        return response.json()

    async def wait_for(self, run: str, *states: str) -> dict[str, Any]:
        run_state: dict[str, Any] = {}

        async def reached() -> bool:
            run_state.update(await self.request("GET", f"jobs/{run}"))
            return run_state["state"] in states

        try:
            await eventually(reached)
        except TimeoutError:
            raise AssertionError(f"it does not reach {states}: {run_state}") from None
        return run_state


@pytest.fixture
async def plant(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tmp_path: Path,
) -> AsyncIterator[Deployment]:
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
            # A busy machine can delay the heartbeats of a live worker by several seconds.
            "PORTOLAN_WORKER_LEASE_S": "10",
            **{f"PORTOLAN_{name.upper()}": value for name, value in settings.items()},
        }
        deployment = Deployment(service, environment)
        people = [{"id": f"p{n}", "city": f"c{n % 4}"} for n in range(PEOPLE)]
        await deployment.request("POST", "people", people)
        try:
            yield deployment
        finally:
            for worker in deployment.workers:
                await worker.kill()


@pytest.mark.timeout(900)  # three Spark processes start, possibly on a busy machine
async def test_a_run_outlives_its_worker_and_the_service(plant: Deployment) -> None:
    """Its worker is killed while it reads, and the service while the next worker continues."""
    first = await plant.start_worker()
    run = (await plant.request("POST", "jobs", JOB))["id"]
    await plant.wait_for(run, "forecasting")
    await first.kill()
    second = await plant.start_worker()

    async def is_retried() -> bool:
        return bool((await plant.request("GET", f"jobs/{run}"))["attempt"] == 2)

    await eventually(is_retried)
    await plant.service.kill()
    await plant.service.start()
    await plant.wait_for(run, "running", "done", "failed")  # the Spark start takes half of the time
    final = await plant.wait_for(run, "done", "failed")
    assert final["state"] == "done", orjson.dumps(final).decode()
    assert final["attempt"] == 2
    rows = (await plant.request("GET", f"jobs/{run}/results"))["items"]
    assert rows == [{"value": f"c{n}", "rows": PEOPLE // 4, "share": 0.25} for n in range(4)]
    for n in range(4):
        city = await plant.request("GET", f"cities/c{n}")
        assert city == {"id": f"c{n}", "value": f"c{n}", "rows": 10, "share": 0.25}
    assert await second.stop() == 0


@pytest.mark.large
@pytest.mark.timeout(900)  # as above
async def test_a_run_outlives_the_spark_under_its_worker(plant: Deployment) -> None:
    """The same process restarts and executes the run, of which nothing was visible before."""
    worker = await plant.start_worker()
    pid = worker.pid
    run = (await plant.request("POST", "jobs", JOB))["id"]

    async def has_read() -> bool:
        """The run starts Spark, so only a finished stage shows that it is up."""
        stages = (await plant.request("GET", f"jobs/{run}")).get("stages", ())
        return any(stage["state"] == "done" for stage in stages)

    await eventually(has_read)
    worker.kill_spark()
    final = await plant.wait_for(run, "done", "failed")
    assert final["state"] == "done", orjson.dumps(final).decode()
    assert (final["attempt"], worker.pid) == (2, pid)
    rows = (await plant.request("GET", f"jobs/{run}/results"))["items"]
    assert [row["rows"] for row in rows] == [PEOPLE // 4] * 4
    assert await worker.stop() == 0
