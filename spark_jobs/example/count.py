"""The worked example of a kind: how many rows have each value of a field.

    {"kind": "example.count", "spec": {"records": {"file": "people.csv"}, "field": "city"}}

gives rows ``value``, ``rows`` and ``share``, the most frequent value first. Everything that a kind
has to do is here once: model its specification, name what it reads, forecast, and divide
its work into stages each of which follows from its inputs alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from spark_jobs.runner.port import Block, ColumnType, Forecast, Input, Stage, StageContext
from spark_jobs.runner.specification import Source, Specification, Text

if TYPE_CHECKING:  # reading a specification needs no Spark
    from pyspark.sql import DataFrame

__all__ = ["Count", "CountSpec"]

_ROWS_PER_S: Final = 500_000
_HEAVIEST: Final = 10


class CountSpec(Specification):
    """What is counted.

    Attributes:
        records: The table.
        field: Whose values.
    """

    records: Source
    field: Text


class Count:
    """Counts the rows of each value of a field."""

    name = "example.count"
    summary = "Counts how many rows have each value of a field."
    specification = CountSpec
    example: ClassVar = {"records": {"class": "people"}, "field": "city"}

    def inputs(self, spec: CountSpec) -> tuple[Input, ...]:
        """Return the table, of which one field is needed."""
        return (Input("records", spec.records, (spec.field,)),)

    def columns(self, spec: CountSpec) -> Mapping[str, ColumnType]:
        """Return the columns; they are the same for every field."""
        del spec
        return {"value": "string", "rows": "integer", "share": "number"}

    def forecast(self, spec: CountSpec, context: StageContext) -> Forecast:
        """Count the rows; the heaviest blocks are the most frequent values."""
        rows = context.input_rows("records")
        heaviest = _counted(context.input("records"), spec.field).orderBy("rows", ascending=False)
        blocks = tuple(Block(str(row["value"]), row["rows"], 0) for row in heaviest.take(_HEAVIEST))
        notes = () if rows else ("There are no rows: the result will have none.",)
        seconds = rows / _ROWS_PER_S
        return Forecast({"records": rows}, heaviest=blocks, time_s=seconds, notes=notes)

    def stages(self, spec: CountSpec) -> tuple[Stage, ...]:
        """Count, then put the counts into an order."""

        def count(context: StageContext) -> DataFrame:
            return _counted(context.input("records"), spec.field)

        def rank(context: StageContext) -> DataFrame:
            return _ranked(context)

        return Stage("count", count), Stage("rank", rank)


def _counted(records: DataFrame, field: str) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - specifications are read without Spark

    value = f.col("`" + field.replace("`", "``") + "`").cast("string")
    return records.groupBy(value.alias("value")).agg(f.count("*").alias("rows"))


def _ranked(context: StageContext) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    counted = context.output("count")
    values, total = counted.agg(f.count("*"), f.coalesce(f.sum("rows"), f.lit(0))).first() or (0, 0)
    context.count("values", values)
    context.progress(1, 2)
    shares = counted.withColumn("share", f.col("rows") / f.lit(total))
    # Equal counts follow by value: the result is the same every time.
    return shares.orderBy(f.desc("rows"), f.asc_nulls_first("value"))
