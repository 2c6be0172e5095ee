"""Executes statements for a batch: the paper's MIG operator.

A batch ships its additions to the inputs of a statement, executes the statement once, and reads the
result of each of its slides back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mediator.continuous.model import Operator
from mediator.continuous.statement import (
    BATCH,
    FROM,
    REPLACED,
    SLIDE,
    UNTIL,
    Statement,
    shipped_columns,
    statement_of,
)
from mediator.stores.postgres.shipped import Batch as ShippedBatch
from mediator.stores.postgres.shipped import ShippedRelations
from spark_jobs.continuous.log import ARROW
from spark_jobs.continuous.operators import Batch, Changes

__all__ = ["Migrations", "as_changes"]

_CSV: Final = pa_csv.WriteOptions(include_header=False)


class Migrations:
    """The statements of a plan, over one connection; used by one thread at a time.

    Args:
        schema: The schema to which relations are shipped.
    """

    def __init__(self, url: str, schema: str, fragments: Sequence[Sequence[Operator]]) -> None:
        self._statements = {
            fragment[-1].name: statement_of(schema, fragment[-1].name, fragment)
            for fragment in fragments
        }
        tables = {
            table: shipped_columns(operator)
            for statement in self._statements.values()
            for table, operator in statement.inputs.items()
        }
        self._database = ShippedRelations(url, schema, tables)
        self._runner = asyncio.Runner()

    def open(self) -> None:
        """Connect.

        Raises:
            StoreError: The database refuses, does not answer, or another process has the schema.
        """
        self._runner.run(self._database.open())

    def drop(self) -> None:
        """Drop the tables.

        Raises:
            StoreError: The database refuses or does not answer.
        """
        self._runner.run(self._database.drop())

    def close(self) -> None:
        self._runner.run(self._database.close())
        self._runner.close()

    def statement(self, root: Operator) -> Statement:
        return self._statements[root.name]

    def execute(self, root: Operator, inputs: Mapping[str, Changes], batch: Batch) -> pa.Table:
        """Return the result of a statement at each slide of a batch; inputs are by table.

        Raises:
            StoreError: The database refuses or does not answer.
        """
        statement = self._statements[root.name]
        shipped = ShippedBatch(
            batch.number,
            {
                name: _as_csv(statement.inputs[name], changes, batch)
                for name, changes in inputs.items()
            },
            REPLACED,
            (batch.number, batch.first),
            statement.text,
            (batch.first, batch.last, *statement.arguments),
        )
        records = self._runner.run(self._database.execute(root.name, shipped))
        return _as_table(root, records)


def as_changes(session: SparkSession, result: pa.Table) -> Changes:
    """Return the result of a statement as rows that are valid at one slide each."""
    rows = session.createDataFrame(result)
    rows = rows.withColumn(UNTIL, f.col(SLIDE) + 1).withColumnRenamed(SLIDE, FROM)
    return Changes(rows, is_kept=False)


def _as_csv(operator: Operator, changes: Changes, batch: Batch) -> bytes:
    """Collect rows in the order of the columns of their table."""
    number = f.lit(batch.number).cast("long").alias(BATCH)
    rows: DataFrame = changes.rows.select(*operator.fields, FROM, UNTIL, number)
    buffer = BytesIO()
    pa_csv.write_csv(rows.toArrow(), buffer, _CSV)
    return buffer.getvalue()


def _as_table(root: Operator, records: Sequence[Any]) -> pa.Table:
    types = {SLIDE: pa.int64(), **{name: ARROW[kind] for name, kind in root.fields.items()}}
    rows = [dict(zip(types, record, strict=True)) for record in records]
    return pa.Table.from_pylist(rows, pa.schema(types))
