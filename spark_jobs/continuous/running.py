"""Runs one execution of a plan in a directory, and resumes it there after a crash.

The directory belongs to one plan over one log. Its lock, and the lock of the schema in the
database, exclude a second process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
from pyspark.sql import SparkSession

from mediator.continuous.planning import Plan
from mediator.embedded.directories import DataDirectoryLock
from spark_jobs.atomic_file import atomic_file
from spark_jobs.continuous.execution import BatchTime, Execution
from spark_jobs.continuous.log import Tuple, TupleLog
from spark_jobs.continuous.migration import Migrations

__all__ = ["DirectoryUnfit", "NoDatabase", "run_plan"]

_MANIFEST: Final = "execution.json"


class NoDatabase(ValueError):
    """The plan has statements, but no database to execute them."""

    def __init__(self) -> None:
        super().__init__("the plan has operators in the database: set PORTOLAN_CONTINUOUS_URL")


class DirectoryUnfit(ValueError):
    """The directory belongs to another plan, or query."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} belongs to another plan or query: use another directory")


def run_plan(
    session: SparkSession,
    plan: Plan,
    tuples: Iterable[Tuple],
    trigger_s: float,
    directory: Path,
    url: str | None,
) -> list[BatchTime]:
    """Execute a plan over a log, from the end of an earlier call.

    Args:
        trigger_s: Seconds of arrivals in a batch, a multiple of a slide.
        url: The URL of the PostgreSQL database, if any.

    Returns:
        The times of the remaining batches; results are in the directory.

    Raises:
        DirectoryUnfit: It belongs to another plan.
        LogUnfit: The log has too long a gap.
        NoDatabase: The plan needs a database.
        StoreError: The database refuses or does not answer.
        DataDirectoryBusy: Another process executes it.
    """
    if plan.physical.fragments and url is None:
        raise NoDatabase
    lock = DataDirectoryLock(directory)
    lock.acquire()
    try:
        manifest = _manifest(directory, plan, trigger_s)
        log = TupleLog(directory, plan.query, trigger_s)
        if not log.is_written:
            log.write(tuples)
        if manifest["is_finished"]:
            return []
        with _connect(url, manifest["schema"], plan) as migrations:
            execution = Execution(session, plan, log, directory, migrations)
            execution.run()
            if migrations is not None:
                migrations.drop()
        _write(directory, {**manifest, "is_finished": True})
        return execution.times
    finally:
        lock.release()


@contextmanager
def _connect(url: str | None, schema: str, plan: Plan) -> Iterator[Migrations | None]:
    if not plan.physical.fragments:
        yield None
        return
    assert url is not None
    migrations = Migrations(url, schema, plan.physical.fragments)
    try:
        migrations.open()
        yield migrations
    finally:
        migrations.close()


def _manifest(directory: Path, plan: Plan, trigger_s: float) -> dict[str, Any]:
    """Read the manifest of the directory, or write it."""
    path = directory / _MANIFEST
    engines = sorted(plan.physical.engines.items())
    identity = blake2b(repr((plan.query, engines, trigger_s)).encode(), digest_size=16).hexdigest()
    if path.exists():
        manifest: dict[str, Any] = orjson.loads(path.read_bytes())
        if manifest["plan"] != identity:
            raise DirectoryUnfit(directory)
        return manifest
    manifest = {"plan": identity, "schema": f"continuous_{uuid4().hex}", "is_finished": False}
    _write(directory, manifest)
    return manifest


def _write(directory: Path, manifest: dict[str, Any]) -> None:
    with atomic_file(directory / _MANIFEST) as file:
        file.write(orjson.dumps(manifest))
