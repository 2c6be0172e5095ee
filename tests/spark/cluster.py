"""A job on a local Spark cluster, whose executors are processes that tests can kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
import pyspark

from tests.java import QUICK_JAVA

__all__ = ["ClusterRun", "command_on_cluster", "executor_of", "executors"]

_EXECUTORS: Final = 2
_MASTER: Final = f"local-cluster[{_EXECUTORS},1,1024]"  # one core and 1024 MB each
_PACKAGE: Final = Path(pyspark.__file__).parent


@dataclass
class ClusterRun:
    """`portolan job run` on a cluster, in a separate process.

    Attributes:
        process: The driver; its JVM holds the cluster's master and workers, and has executors as
            children.
        out: The file of the result.
    """

    process: asyncio.subprocess.Process
    out: Path

    @classmethod
    @asynccontextmanager
    async def started(
        cls, document: Mapping[str, Any], scratch: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[ClusterRun]:
        """Start a job; kill its remaining processes after the block.

        Args:
            document: The job.
            scratch: An empty directory.
            environment: Additional environment variables of the driver.
        """
        job, out = scratch / "job.json", scratch / "result.json"
        job.write_bytes(orjson.dumps(document))
        command = ("job", "run", job, "--out", out, "--run-dir", scratch / "run")
        async with command_on_cluster(command, scratch, environment) as process:
            yield cls(process, out)

    @property
    def log(self) -> str:
        """The driver's output."""
        return self.out.with_name("log").read_text()


@asynccontextmanager
async def command_on_cluster(
    command: Sequence[object], scratch: Path, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start `portolan` on its own cluster; kill the remaining processes after the block.

    Args:
        scratch: A directory; its file `log` gets the command's output.
    """
    with (scratch / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from app.cli import main; main()", *map(str, command)),
            env={**os.environ, **_settings(_home(scratch)), **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def executors(driver: int) -> list[psutil.Process]:
    """Return the executors of a driver's cluster."""
    children = psutil.Process(driver).children(recursive=True)
    return [child for child in children if _is_executor(child)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "--executor-id" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


def executor_of(process: int) -> psutil.Process:
    """Return the executor of a process that executes a task."""
    parents = psutil.Process(process).parents()
    (executor,) = [parent for parent in parents if "--executor-id" in parent.cmdline()]
    return executor


def _settings(home: Path) -> dict[str, str]:
    java_options = " ".join(QUICK_JAVA)
    conf = {
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",  # so that each executor gets work
        "spark.sql.adaptive.enabled": "false",
    }
    return {
        "SPARK_HOME": str(home),
        "PORTOLAN_SPARK": _MASTER,
        "PORTOLAN_SPARK_CONF": orjson.dumps(conf).decode(),
    }


def _home(scratch: Path) -> Path:
    """Create a Spark home, into which workers write the executors' output."""
    home = scratch / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(_PACKAGE / name)
    return home
