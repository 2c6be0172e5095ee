"""Inputs, wherever they lie."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.classes import read_class
from spark_jobs.sources.files import read_file

__all__ = ["read_input"]


def read_input(spark: SparkSession, input_: Input) -> DataFrame:
    """Read an input: `id` and the fields asked for.

    Raises:
        InputUnfit: It is not there, or has not got the fields.
    """
    match input_.source:
        case FileSource() as source:
            return read_file(spark, input_, source)
        case source:
            return read_class(spark, input_, source)
