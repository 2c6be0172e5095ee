"""A physical plan as one streaming query, batch by batch.

What a batch has kept, shipped and written bears its number. So one that is executed again, as after
a crash, replaces all of that, and every result is there exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from mediator.continuous.model import Operator, inputs_of
from mediator.continuous.order import Engine
from mediator.continuous.planning import Plan
from mediator.continuous.statement import BATCH, SLIDE
from mediator.stores.port import StoreError
from spark_jobs.atomic_file import atomic_file
from spark_jobs.continuous.log import TupleLog
from spark_jobs.continuous.migration import Migrations, as_changes
from spark_jobs.continuous.operators import Batch, Changes, SparkOperators
from spark_jobs.paths import literal_path
from spark_jobs.streaming_queries import start_batches

__all__ = ["BatchTime", "Execution", "results_in"]

_RESULTS: Final = "results"


@dataclass(frozen=True, slots=True)
class BatchTime:
    """How long a batch took, in seconds since the end of the one before."""

    number: int
    seconds: float


class Execution:
    """Executes a plan over a log, and goes on behind the last batch that ended.

    Args:
        directory: Of this execution: what it keeps, its checkpoint, and its results.
        migrations: The statements of the plan, connected; None: it has none.
    """

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        log: TupleLog,
        directory: Path,
        migrations: Migrations | None,
    ) -> None:
        self._session, self._plan, self._log = session, plan, log
        self._directory, self._migrations = directory, migrations
        self._completed = log.completed()
        self._operators = SparkOperators(session, log, directory / "kept")
        self._failure: Exception | None = None
        self.times: list[BatchTime] = []

    def run(self) -> None:
        """Execute all batches that are left.

        Raises:
            StoreError: The database refuses or does not answer.
        """
        (self._directory / _RESULTS).mkdir(parents=True, exist_ok=True)
        files = self._session.readStream.schema(from_arrow_schema(self._log.schema))
        source = literal_path(str(self._log.files))
        tuples = files.option("maxFilesPerTrigger", 1).parquet(source)
        checkpoint = self._directory / "checkpoint"
        query = start_batches(tuples, self._guarded, checkpoint, {"availableNow": True})
        self._last_end = perf_counter()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            query.stop()

    def _guarded(self, tuples: DataFrame, number: int) -> None:
        """Execute a batch; Spark reports a failure as text, so the exception is kept."""
        try:
            self._execute(tuples, number)
        except StoreError as error:
            self._failure = error
            raise
        now = perf_counter()
        self.times.append(BatchTime(number, now - self._last_end))
        self._last_end = now

    def _execute(self, tuples: DataFrame, number: int) -> None:
        completed = self._completed[number]
        own = tuples.where(f.when(f.col(BATCH) == number, True).otherwise(_another_batch()))
        batch = Batch(number, own, completed.first, completed.last)
        root = self._plan.query.root
        if self._is_statement(root):
            result = self._migrated(root, batch)
        else:
            changes = self._changes(root, batch)
            result = self._operators.at_slides(f"{root.name}.result", changes, batch).toArrow()
        self._write(result, number)

    def _changes(self, operator: Operator, batch: Batch) -> Changes:
        if self._is_statement(operator):
            return as_changes(self._session, self._migrated(operator, batch))
        below = [self._changes(each, batch) for each in inputs_of(operator)]
        return self._operators.changes(operator, below, batch)

    def _migrated(self, root: Operator, batch: Batch) -> pa.Table:
        assert self._migrations is not None
        inputs = self._migrations.statement(root).inputs
        shipped = {table: self._changes(each, batch) for table, each in inputs.items()}
        return self._migrations.execute(root, shipped, batch)

    def _is_statement(self, operator: Operator) -> bool:
        return self._plan.physical.engines[operator.name] is Engine.DATABASE

    def _write(self, result: pa.Table, number: int) -> None:
        slide_s = self._plan.query.slide_s
        rows = result.sort_by(SLIDE).to_pylist()
        with atomic_file(self._directory / _RESULTS / f"{number:09}.ndjson") as file:
            for row in rows:
                at_s = round(row.pop(SLIDE) * slide_s, 6)
                file.write(orjson.dumps({"time_s": at_s, "values": row}) + b"\n")


def results_in(directory: Path) -> Iterator[bytes]:
    """Go through the results of an execution, each a line, in the order of their slides."""
    for path in sorted((directory / _RESULTS).glob("*.ndjson")):
        with path.open("rb") as lines:
            yield from lines


def _another_batch() -> Any:
    return f.raise_error("a file of another batch").cast("boolean")
