"""Blocking and comparison by Splink: the same pairs and the same patterns as on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.linkage.open.in_process.duck import in_memory_database, run_steps
from spark_jobs.linkage.open.in_process.settings import ROW
from spark_jobs.linkage.open.in_process.tables import DuckRecords, load_records
from spark_jobs.linkage.open.spec import Comparison, OpenSpec
from spark_jobs.runner.port import StageContext

__all__ = ["compared"]


def compared(spec: OpenSpec, context: StageContext) -> DataFrame:
    """All pairs of all blocks, each once: ``l``, ``r`` (l < r), ``pattern`` and ``rarity``."""
    with in_memory_database() as connection:
        records = load_records(spec, context)
        (table,) = run_steps(context, connection, [lambda duck: _pairs(records, duck)])
    return context.spark.createDataFrame(table)


def _pairs(records: DuckRecords, duck: duckdb.DuckDBPyConnection) -> pa.Table:
    """Splink weighs pairs too, by a model that nobody has fitted yet: that is not looked at."""
    predicted = records.linker(duck).inference.predict()
    columns = ", ".join(_columns(records.spec))
    query = f"SELECT {columns} FROM {predicted.physical_name}"  # noqa: S608 - names of ours
    return duck.sql(query).to_arrow_table()


def _columns(spec: OpenSpec) -> Iterator[str]:
    yield f"least({ROW}_l, {ROW}_r) AS l"
    yield f"greatest({ROW}_l, {ROW}_r) AS r"
    pattern = "0::BIGINT"
    for k, comparison in enumerate(spec.comparisons):
        pattern = f"({pattern} * {len(comparison.level_names)} + {_level(k, comparison)})"
    yield f"{pattern} AS pattern"
    yield f"{' + '.join(['0::DOUBLE', *_rarities(spec)])} AS rarity"


def _level(k: int, comparison: Comparison) -> str:
    """Splink counts levels from *else* up, and null is -1; we count from null and down."""
    other = len(comparison.level_names) - 1
    return f"CASE WHEN gamma_c{k} = -1 THEN 0 ELSE {other} - gamma_c{k} END"


def _rarities(spec: OpenSpec) -> Iterator[str]:
    for k, comparison in enumerate(spec.comparisons):
        if comparison.term_frequency:
            exact = f"gamma_c{k} = {len(comparison.levels)}"
            yield f"CASE WHEN {exact} THEN -log2(greatest(tf_c{k}_l, tf_c{k}_r)) ELSE 0 END"
