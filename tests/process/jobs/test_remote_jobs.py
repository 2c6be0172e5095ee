"""`portolan job submit`, `show`, `list`, `cancel`, `resume` against a running service.

The test acts as the worker, so that no Spark is needed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue, TakenRun
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.losing import losing
from tests.faults.operation.forked import Forked, Result, called
from tests.faults.service import Service as ServiceProcess
from tests.process.jobs.idle_worker import idle_worker
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

JOB: dict[str, Any] = {
    "kind": "example.count",
    "spec": {"records": {"class": "people"}, "field": "city"},
}
_SUBMITTED = re.compile(
    'http_server_request_duration_seconds_count{(?=.*http_request_method="POST").*/jobs"'
)
STAGES = [
    {"name": name, "state": state, "done": done, "total": 1, "rows": 0, "seconds": 0.1}
    for name, state, done in (("read records", "done", 1), ("count", "running", 0))
]


@dataclass
class Counter:
    """The directory where the command line runs, and the service behind it."""

    service: ServiceProcess
    queue: RunQueue
    scratch: Path
    jobs: Path
    database: str

    @property
    def spec(self) -> Path:
        return self.scratch / "job.json"

    async def call(self, *arguments: str, url: str = "", database: str = "") -> Result:
        """Call `portolan job`, in a separate process."""
        address = ["--url", url or self.service.data, "--database", database or self.database]
        return await called(["job", *arguments, *address], {**os.environ, "COLUMNS": "200"})

    async def call_for_run(self, *arguments: str) -> dict[str, Any]:
        """Call it, and return the run that it prints."""
        result = await self.call(*arguments)
        assert result.exit_code == 0, result
        document: dict[str, Any] = orjson.loads(result.stdout)
        return document

    async def submissions(self) -> float:
        """Return the number of submissions that the service has answered since its start."""
        async with Connection(self.service.admin) as admin:
            metrics = (await admin.request("GET", "/metrics")).body.decode()
        counts = [line for line in metrics.splitlines() if _SUBMITTED.match(line)]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    async def cancel_only_run(self) -> str:
        """Cancel the run of the database, so that no other test takes it; return its id."""
        [run] = [line.split()[0] for line in (await self.call("list")).lines]
        await self.call_for_run("cancel", run)
        return run

    async def take(self) -> TakenRun:
        runs: list[TakenRun] = []

        async def has_run() -> bool:
            runs.extend(filter(None, [await self.queue.take(60)]))
            return bool(runs)

        await eventually(has_run)
        return runs[0]

    async def finish(self, run: TakenRun) -> None:
        result = self.jobs / run.id / "stages" / "000001-x"
        result.mkdir(parents=True)
        pq.write_table(pa.table({"value": ["Ulm", "Bonn"], "rows": [2, 1]}), result / "a.parquet")
        await self.queue.heartbeat(run, "running", {"stages": STAGES, "log": []}, 60)
        ending = {"reasons": [], "rows": 2, "result": result.name}
        assert await self.queue.end(run, "done", {"stages": STAGES}, ending)


@dataclass
class Plant:
    """A service, its queue, and the folder of the results of jobs."""

    service: ServiceProcess
    queue: RunQueue
    jobs: Path


@pytest.fixture(scope="module")
async def plant(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Plant]:
    jobs = tmp_path_factory.mktemp("jobs")
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        ServiceProcess.on(
            configs, url, redis_config.url, jobs_dir=str(jobs), sketch="off", relays="here"
        ).running() as service,
    ):
        await service.favour()
        catalogue = Catalogue(url)
        await catalogue.open()
        async with idle_worker(CatalogueWorkers(catalogue)):
            yield Plant(service, RunQueue(catalogue), jobs)
        await catalogue.close()


@pytest.fixture
async def counter(plant: Plant, tmp_path: Path) -> Counter:
    database = unique("town")
    await plant.service.put_schema(database, {"people": {"fields": {"city": field_on("redis")}}})
    (tmp_path / "job.json").write_bytes(orjson.dumps(JOB))
    return Counter(plant.service, plant.queue, tmp_path, plant.jobs, database)


async def test_a_run_by_the_command_line(counter: Counter) -> None:
    """From its submission to its result; cancelled and resumed on the way."""
    spec = str(counter.spec)
    run = await counter.call_for_run("submit", spec)
    assert (run["state"], run["job"]) == ("queued", JOB)
    assert (await counter.call_for_run("cancel", run["id"]))["state"] == "cancelled"
    cancelled = await counter.call("show", run["id"], "--wait")
    assert cancelled.exit_code == 130
    assert (await counter.call_for_run("resume", run["id"]))["state"] == "queued"
    out = counter.scratch / "result.csv"
    waiting = asyncio.create_task(counter.call("show", run["id"], "--out", str(out)))
    await counter.finish(await counter.take())
    result = await waiting
    assert result.exit_code == 0, result
    assert out.read_text() == '"value","rows"\n"Ulm",2\n"Bonn",1\n'
    assert "2 rows" in result.stderr
    listing = await counter.call("list")
    assert [line.split()[:2] for line in listing.stdout.splitlines()] == [[run["id"], "done"]]


async def test_a_job_is_submitted_once_if_the_service_restarts_meanwhile(counter: Counter) -> None:
    """The service has accepted it, and is killed before the answer arrives."""

    async def restart() -> None:
        await counter.service.kill()
        await counter.service.start()

    async with losing(counter.service.data, losses=1, on_loss=restart) as proxy:
        result = await counter.call("submit", str(counter.spec), url=proxy.url)
    assert result.exit_code == 0, result
    assert "Trying again" in result.stderr
    assert orjson.loads(result.stdout)["id"] == await counter.cancel_only_run()


async def test_an_interrupted_submission_says_how_to_find_its_run(counter: Counter) -> None:
    """Its answers are lost until Ctrl-C."""
    async with losing(counter.service.data, losses=1_000) as proxy:
        address = ("--url", proxy.url, "--database", counter.database)
        process = await Forked.start(
            ("job", "submit", str(counter.spec), *address), {**os.environ, "COLUMNS": "200"}
        )
        async with asyncio.timeout(120):
            assert "Trying again" in (await process.output.readline()).decode()
            process.send(signal.SIGINT)
            status, output = await process.ended()
    assert status == 130
    assert "portolan job list" in output
    await counter.cancel_only_run()


async def test_submit_waits_for_the_result(counter: Counter) -> None:
    out, before = counter.scratch / "result.json", await counter.submissions()

    async def is_answered() -> bool:  # after the run can be taken
        return await counter.submissions() > before

    waiting = asyncio.create_task(
        counter.call("submit", str(counter.spec), "--wait", "--out", str(out))
    )
    run = await counter.take()
    await eventually(is_answered)
    await counter.service.kill()
    await counter.service.start()
    await counter.finish(run)
    result = await waiting
    assert result.exit_code == 0, result
    assert out.read_text() == '{"value":"Ulm","rows":2}\n{"value":"Bonn","rows":1}\n'
    waiting = asyncio.create_task(counter.call("submit", str(counter.spec), "--wait"))
    run = await counter.take()
    await counter.queue.end(run, "failed", {}, {"reasons": ["The disk is full."]})
    result = await waiting
    assert result.exit_code == 1
    assert "The run failed: The disk is full." in result.stderr


async def test_refused_submissions_are_reported(counter: Counter) -> None:
    refused = await counter.call("submit", str(counter.spec), database="nowhere")
    assert refused.exit_code == 1
    assert "That was not done:" in refused.stderr
    counter.spec.write_bytes(orjson.dumps({**JOB, "spec": {**JOB["spec"], "x": 1}}))
    refused = await counter.call("submit", str(counter.spec))
    assert "/spec/x: Extra inputs are not permitted" in " ".join(refused.stderr.split())
    counter.spec.write_text("{")
    assert (await counter.call("submit", str(counter.spec))).exit_code == 2
    counter.spec.write_bytes(orjson.dumps(JOB))
    result = await counter.call("submit", str(counter.spec), "--out", "result.xlsx")
    assert result.exit_code == 2
    unreachable = await counter.call("list", url="http://127.0.0.1:1")
    assert "does not answer" in " ".join(unreachable.stderr.split())
    file = counter.scratch / "key"
    for wrong in (
        b"\n",
        b"\xef\xbb\xbfkey\n",
        "clé\n".encode(),
    ):  # the second has a byte order mark
        file.write_bytes(wrong)
        assert "holds no key" in (await counter.call("list", "--key-file", str(file))).stderr
    assert (await counter.call("show", "none")).exit_code == 1
