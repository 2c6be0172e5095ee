"""Texts compared case-insensitively and without surrounding blanks."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.profiling.canonical import CellType, has_value, normalise
from spark_jobs.profiling.spec import ValueRule

FORMS: Final = {
    " 12.50": "12.5",
    "12.50 ": "12.5",
    " -0.0 ": "0",
    " 007": "007",
    " 2024-05-01T10:00:00+02:00 ": "2024-05-01 08:00:00",
    "  North  Sea ": "north  sea",
}


def test_numbers_and_times_are_recognised_despite_surrounding_blanks(spark: SparkSession) -> None:
    cells = spark.createDataFrame([(text,) for text in FORMS], "cell string")
    form = normalise(f.col("cell"), CellType.TEXT, ValueRule(fold=True))
    assert [row[0] for row in cells.select(form).collect()] == [*FORMS.values()]


def values_in(spark: SparkSession, rule: ValueRule, *texts: str) -> list[str]:
    cells = spark.createDataFrame([(text,) for text in texts], "cell string")
    condition = has_value(f.col("cell"), f.lit(CellType.TEXT.value), rule)
    return [row[0] for row in cells.where(condition).collect()]


def test_nulls_are_recognised_despite_surrounding_blanks(spark: SparkSession) -> None:
    texts = ("", " ", " - ", "n/a ", "x")
    assert values_in(spark, ValueRule(nulls=("", " -"), fold=True), *texts) == ["n/a ", "x"]
    assert values_in(spark, ValueRule(nulls=("", "-")), *texts) == [*texts[1:]]
