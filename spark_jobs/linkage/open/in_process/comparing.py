"""Blocking and comparison by Splink: the same pairs and patterns as on Spark.

Prepared records are DuckDB tables, one per input, with generated column names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from splink import Linker

from spark_jobs.linkage.open.in_process.duck import in_memory_database, run_steps, splink_api
from spark_jobs.linkage.open.in_process.settings import ROW, settings
from spark_jobs.linkage.open.plan import SPARE_CODES, compared_by_characters, non_ascii_characters
from spark_jobs.linkage.open.spec import FieldComparison, Measure, OpenSpec
from spark_jobs.runner.port import StageContext

__all__ = ["DuckRecords", "compare_pairs", "comparison_columns", "load_records"]


def comparison_columns(records: DataFrame, spec: OpenSpec) -> DataFrame:
    keys = [
        f.nullif(f.get("keys", f.lit(rule)), f.lit(0)).alias(f"k{rule}")
        for rule in range(len(spec.blocking))
    ]
    columns = [name for name in records.columns if name[0] in "cn" and name[1:].isdigit()]
    known = f.col("known").isNotNull().alias("known")
    return records.select(f.col("row").alias(ROW), "source", known, *keys, *columns)


@dataclass(frozen=True, slots=True)
class DuckRecords:
    """The prepared records of a run for DuckDB, and their non-ASCII characters."""

    spec: OpenSpec
    records: pa.Table
    characters: str

    def linker(self, duck: duckdb.DuckDBPyConnection) -> Linker:
        api = splink_api(duck)
        return Linker(
            self.create_tables(duck), settings(self.spec), api, set_up_basic_logging=False
        )

    def create_tables(self, duck: duckdb.DuckDBPyConnection) -> list[str]:
        duck.register("records", self.records)
        names = [f"t{number}" for number in range(len(self.spec.inputs))]
        for number, name in enumerate(names):
            self._create_table(duck, name, number)
        duck.unregister("records")
        return names

    def _create_table(self, duck: duckdb.DuckDBPyConnection, name: str, source: int) -> None:
        replacements = ", ".join(_replacements(self.spec))
        selection = f"* EXCLUDE (source){f' REPLACE ({replacements})' if replacements else ''}"
        # Characters are data: they are passed as parameters, never as SQL.
        characters = {"characters": self.characters, "codes": SPARE_CODES[: len(self.characters)]}
        columns = selection + "".join(_word_sets(self.spec))
        query = f"SELECT {columns} FROM records WHERE source = {source}"  # noqa: S608 - generated names
        duck.execute(f"CREATE TABLE {name} AS {query}", characters if replacements else None)


def load_records(spec: OpenSpec, context: StageContext) -> DuckRecords:
    records = context.output("records")
    return DuckRecords(
        spec, comparison_columns(records, spec).toArrow(), non_ascii_characters(records, spec)
    )


def _replacements(spec: OpenSpec) -> Iterator[str]:
    for k in compared_by_characters(spec):
        yield f"translate(c{k}, $characters, $codes) AS c{k}"


def _word_sets(spec: OpenSpec) -> Iterator[str]:
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure is Measure.JACCARD for level in comparison.levels):
            yield f", list_distinct(string_split(c{k}, ' ')) AS w{k}"


def compare_pairs(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Compare all pairs of all blocks, once each: ``l``, ``r`` (l < r), ``pattern``, ``rarity``."""
    with in_memory_database() as connection:
        records = load_records(spec, context)
        (table,) = run_steps(context, connection, [lambda duck: _pairs(records, duck)])
    return context.spark.createDataFrame(table)


def _pairs(records: DuckRecords, duck: duckdb.DuckDBPyConnection) -> pa.Table:
    # Splink also weighs the pairs, by an unfitted model: these weights are ignored.
    predicted = records.linker(duck).inference.predict()
    columns = ", ".join(_columns(records.spec))
    query = f"SELECT {columns} FROM {predicted.physical_name}"  # noqa: S608 - generated names
    return duck.sql(query).to_arrow_table()


def _columns(spec: OpenSpec) -> Iterator[str]:
    yield f"least({ROW}_l, {ROW}_r) AS l"
    yield f"greatest({ROW}_l, {ROW}_r) AS r"
    pattern = "0::BIGINT"
    for k, comparison in enumerate(spec.comparisons):
        pattern = f"({pattern} * {len(comparison.level_names)} + {_level(k, comparison)})"
    yield f"{pattern} AS pattern"
    yield f"{' + '.join(['0::DOUBLE', *_rarities(spec)])} AS rarity"


def _level(k: int, comparison: FieldComparison) -> str:
    """Map Splink's level, from *else* (0) up with null as -1, to ours, from null (0) down."""
    else_level = len(comparison.level_names) - 1
    return f"CASE WHEN gamma_c{k} = -1 THEN 0 ELSE {else_level} - gamma_c{k} END"


def _rarities(spec: OpenSpec) -> Iterator[str]:
    for k, comparison in enumerate(spec.comparisons):
        if comparison.term_frequency:
            exact = f"gamma_c{k} = {len(comparison.levels)}"
            yield f"CASE WHEN {exact} THEN -log2(greatest(tf_c{k}_l, tf_c{k}_r)) ELSE 0 END"
