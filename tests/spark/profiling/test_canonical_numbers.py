"""The canonical form of numbers in text form."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.profiling.canonical import CellType, normalise
from spark_jobs.profiling.spec import ValueRule

FORMS: Final = {
    "1": "1",
    "100": "100",
    "1.0": "1",
    "1.500": "1.5",
    "1.0500": "1.05",
    "0.10010": "0.1001",
    "-0.0": "0",
    "-0.50": "-0.5",
    "1.50 kg": "1.50 kg",
    "1.": "1.",
}


def normalised(spark: SparkSession, *texts: str) -> list[str]:
    cells = spark.createDataFrame([(text,) for text in texts], "cell string")
    form = normalise(f.col("cell"), CellType.TEXT, ValueRule())
    return [row[0] for row in cells.select(form).collect()]


def test_trailing_zeros_of_a_fraction_are_removed(spark: SparkSession) -> None:
    assert normalised(spark, *FORMS) == [*FORMS.values()]


def test_a_long_number_is_normalised_in_linear_time(spark: SparkSession) -> None:
    """A million zeros before the last digit: a pattern that backtracks would take hours."""
    number = f"0.{'0' * 1_000_000}1"
    assert normalised(spark, number, f"{number}00") == [number, number]
