"""Prepared records as tables of DuckDB, one for each input, with columns of our own names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from splink import Linker

from spark_jobs.linkage.open.in_process.duck import splink_api
from spark_jobs.linkage.open.in_process.settings import ROW, settings
from spark_jobs.linkage.open.non_ascii import FREE, non_ascii_characters, spelled
from spark_jobs.linkage.open.spec import Measure, OpenSpec
from spark_jobs.runner.port import StageContext

__all__ = ["Given", "given", "shown"]


def shown(records: DataFrame, spec: OpenSpec) -> DataFrame:
    """What is needed of prepared records: rows, sources, keys, and what is compared."""
    keys = [
        f.nullif(f.get("keys", f.lit(rule)), f.lit(0)).alias(f"k{rule}")
        for rule in range(len(spec.blocking))
    ]
    compared = [name for name in records.columns if name[0] in "cn" and name[1:].isdigit()]
    known = f.col("known").isNotNull().alias("known")
    return records.select(f.col("row").alias(ROW), "source", known, *keys, *compared)


@dataclass(frozen=True, slots=True)
class Given:
    """The records of a run as DuckDB takes them.

    Attributes:
        spec: Complete.
        records: Rows, sources, keys, and what is compared.
        letters: Those beyond ASCII.
    """

    spec: OpenSpec
    records: pa.Table
    letters: str

    def linker(self, duck: duckdb.DuckDBPyConnection) -> Linker:
        """Splink, on tables that are made here."""
        api = splink_api(duck)
        return Linker(self.fill(duck), settings(self.spec), api, set_up_basic_logging=False)

    def fill(self, duck: duckdb.DuckDBPyConnection) -> list[str]:
        """Make a table for each input; their names."""
        duck.register("records", self.records)
        names = [f"t{number}" for number in range(len(self.spec.inputs))]
        for number, name in enumerate(names):
            self._fill(duck, name, number)
        duck.unregister("records")
        return names

    def _fill(self, duck: duckdb.DuckDBPyConnection, name: str, source: int) -> None:
        """Letters are values: they come as parameters."""
        replaced = ", ".join(_replaced(self.spec))
        chosen = f"* EXCLUDE (source){f' REPLACE ({replaced})' if replaced else ''}"
        letters = {"letters": self.letters, "codes": FREE[: len(self.letters)]}
        columns = chosen + "".join(_words(self.spec))
        query = f"SELECT {columns} FROM records WHERE source = {source}"  # noqa: S608 - of ours
        duck.execute(f"CREATE TABLE {name} AS {query}", letters if replaced else None)


def given(spec: OpenSpec, context: StageContext) -> Given:
    """Take the prepared records of a run into this process."""
    records = context.output("records")
    return Given(spec, shown(records, spec).toArrow(), non_ascii_characters(records, spec))


def _replaced(spec: OpenSpec) -> Iterator[str]:
    for k in spelled(spec):
        yield f"translate(c{k}, $letters, $codes) AS c{k}"


def _words(spec: OpenSpec) -> Iterator[str]:
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure is Measure.JACCARD for level in comparison.levels):
            yield f", list_distinct(string_split(c{k}, ' ')) AS w{k}"
