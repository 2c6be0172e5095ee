"""Executes a physical plan as one streaming query, batch by batch.

The state, shipped rows and results of a batch carry its number. So a repeated batch, for instance
after a crash, replaces them, and every result exists exactly once.
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
    """The duration of a batch, in seconds since the end of the previous one."""

    number: int
    seconds: float


class Execution:
    """Executes a plan over a log, and continues after the last finished batch.

    Args:
        directory: The directory of this execution: its state, checkpoint and results.
        migrations: The connected statements of the plan; None: it has no statements.
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
        """Execute all remaining batches.

        Raises:
            StoreError: The database refuses or does not answer.
        """
        (self._directory / _RESULTS).mkdir(parents=True, exist_ok=True)
        files = self._session.readStream.schema(from_arrow_schema(self._log.schema))
        source = literal_path(str(self._log.files))
        tuples = files.option("maxFilesPerTrigger", 1).parquet(source)
        checkpoint = self._directory / "checkpoint"
        query = start_batches(tuples, self._execute_guarded, checkpoint, {"availableNow": True})
        self._last_end = perf_counter()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            query.stop()

    def _execute_guarded(self, tuples: DataFrame, number: int) -> None:
        """Execute a batch, and store an exception, because Spark reports only its text."""
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
        checked = tuples.where(f.when(f.col(BATCH) == number, True).otherwise(_another_batch()))
        batch = Batch(number, checked, completed.first, completed.last)
        root = self._plan.query.root
        if self._is_statement(root):
            result = self._migrate(root, batch)
        else:
            changes = self._changes(root, batch)
            result = self._operators.at_slides(f"{root.name}.result", changes, batch).toArrow()
        self._write(result, number)

    def _changes(self, operator: Operator, batch: Batch) -> Changes:
        if self._is_statement(operator):
            return as_changes(self._session, self._migrate(operator, batch))
        inputs = [self._changes(input_, batch) for input_ in inputs_of(operator)]
        return self._operators.changes(operator, inputs, batch)

    def _migrate(self, root: Operator, batch: Batch) -> pa.Table:
        assert self._migrations is not None
        inputs = self._migrations.statement(root).inputs
        shipped = {table: self._changes(input_, batch) for table, input_ in inputs.items()}
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
    """Yield the results of an execution, each a line, in the order of their slides."""
    for path in sorted((directory / _RESULTS).glob("*.ndjson")):
        with path.open("rb") as lines:
            yield from lines


def _another_batch() -> Any:
    return f.raise_error("a file of another batch").cast("boolean")
