"""A job on a cluster of Spark on this machine, whose executors are processes that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import psutil
import pyspark

from spark_jobs.runner.conformance import Trial

__all__ = ["ClusterRun"]

_EXECUTORS: Final = 2
_MASTER: Final = f"local-cluster[{_EXECUTORS},1,1024]"  # of one core and 1024 MB each
_PACKAGE: Final = Path(pyspark.__file__).parent


@dataclass
class ClusterRun:
    """`portolan job run` on a cluster, in a process of its own.

    Attributes:
        process: The driver; its JVM holds the cluster's master and workers, and has executors as
            children.
        api: Spark's REST API (https://spark.apache.org/docs/latest/monitoring.html#rest-api).
        out: Where the result goes.
    """

    process: asyncio.subprocess.Process
    api: httpx.AsyncClient
    out: Path

    @classmethod
    @asynccontextmanager
    async def started(
        cls, trial: Trial, directory: Path, scratch: Path
    ) -> AsyncIterator[ClusterRun]:
        """Start a job; what is left of it after the block is killed.

        Args:
            trial: The job.
            directory: Where it keeps finished stages.
            scratch: An empty directory.
        """
        job, out, port = scratch / "job.json", scratch / "result.json", _free_port()
        job.write_bytes(orjson.dumps(trial.document))
        command = ("job", "run", job, "--out", out, "--run-dir", directory)
        with (scratch / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from app.cli import main; main()", *command),
                env={**os.environ, **_settings(_home(scratch), port)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}/api/v1/applications"
            async with httpx.AsyncClient(base_url=url, timeout=60) as api:
                yield cls(process, api, out)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def executors(self) -> dict[str, dict[str, Any]]:
        """Return what the driver knows of each executor that lives, by its id."""
        (application,) = (await self.api.get("")).json()
        known = (await self.api.get(f"{application['id']}/executors")).json()
        return {one["id"]: one for one in known if one["id"] != "driver"}

    async def complete(self) -> bool:
        """Whether all executors are there."""
        assert self.process.returncode is None, self.log
        try:
            return len(await self.executors()) == _EXECUTORS
        except (httpx.TransportError, ValueError):  # the driver is starting
            return False

    def executor(self, id_: str) -> psutil.Process:
        """Return the process of an executor."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        (found,) = [one for one in below if one.name() == "java" and _executor_in(one) == id_]
        return found

    @property
    def log(self) -> str:
        """What the driver wrote."""
        return self.out.with_name("log").read_text()


def _settings(home: Path, port: int) -> dict[str, str]:
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for processes that live for a minute
    conf = {
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",  # so that each executor has something to do
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
    }
    return {
        "SPARK_HOME": str(home),
        "PORTOLAN_SPARK": _MASTER,
        "PORTOLAN_SPARK_CONF": orjson.dumps(conf).decode(),
    }


def _home(scratch: Path) -> Path:
    """Make a home of Spark: its workers write there what executors say."""
    home = scratch / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(_PACKAGE / name)
    return home


def _executor_in(process: psutil.Process) -> str | None:
    """Return the id of the executor that a process is."""
    arguments: list[str] = process.cmdline()
    if "--executor-id" not in arguments:
        return None
    return arguments[arguments.index("--executor-id") + 1]


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port: int = taken.getsockname()[1]
    return port
