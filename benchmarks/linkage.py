"""Open linkage: accuracy without labels or configuration, and time against Splink.

Nothing is configured: rules and comparisons are proposed from the data, which nobody looked at;
threshold and clustering are the defaults. The truth is only used to judge. For time all three get
the same blocks and comparisons of people who were made up, and estimate, compare and cluster.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from pyspark.sql import SparkSession
from splink import DuckDBAPI, SparkAPI
from splink.backends.spark import similarity_jar_location

from benchmarks.harness.labelled_data import (
    DataSet,
    catalogues,
    data_sets,
    products,
    synthetic,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.splink_baseline import seconds
from benchmarks.harness.stage_context import FolderContext
from spark_jobs.linkage.open.in_process.comparing import comparison_columns
from spark_jobs.linkage.open.spec import OpenSpec

__all__ = ["run"]

_QUICK_PEOPLE: Final = 1_000
_PEOPLE: Final = 50_000
_QUICK_PRODUCTS: Final = 300
_PRODUCTS: Final = 1_000
_MANY_PEOPLE: Final = 500_000
_CONF: Final[Mapping[str, Any]] = {
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_SPEC: Final[Mapping[str, Any]] = {
    "inputs": {"people": {"file": "people.csv"}},
    "blocking": [["phone"], ["surname", "date_of_birth"], ["given_name", "surname"], ["street"]],
    "comparisons": [
        {"columns": ["given_name"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["surname"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["date_of_birth"], "levels": ["exact", {"levenshtein": 1}]},
        {"columns": ["street"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["city"], "levels": ["exact"], "term_frequency": True},
        {"columns": ["phone"], "levels": ["exact", {"levenshtein": 1}]},
    ],
    "clustering": "components",
}


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    all_data = [synthetic(_QUICK_PEOPLE, options.seed), *([] if options.quick else data_sets())]
    results: list[Result] = []
    with _session() as spark:
        for one in all_data:
            results += _accuracy(spark, one, options)
        size = _QUICK_PRODUCTS if options.quick else _PRODUCTS
        made_up = products(size, options.seed)
        for one in (made_up, *(() if options.quick else catalogues())):
            results += _catalogue(spark, one, options)
        size = _QUICK_PEOPLE if options.quick else _PEOPLE
        results += _times(spark, synthetic(size, options.seed), options)
        if not options.quick:
            results.append(_end_to_end(spark, synthetic(_MANY_PEOPLE, options.seed), options))
    return Measured(results)


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Spark on two cores, with the jar that Splink compares strings by."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with TemporaryDirectory() as checkpoints:  # Splink writes some
        conf = {
            **_CONF,
            "spark.jars": similarity_jar_location(),
            "spark.checkpoint.dir": checkpoints,
        }
        session = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _opened_context(spark: SparkSession, data: DataSet) -> Iterator[FolderContext]:
    with TemporaryDirectory() as folder:
        frames = {name: spark.createDataFrame(table) for name, table in data.tables.items()}
        yield FolderContext(spark, Path(folder), frames)


def _accuracy(spark: SparkSession, data: DataSet, options: Options) -> Iterator[Result]:
    options.say(f"{data.name}: linked without configuration")
    with _opened_context(spark, data) as context:
        context.execute(OpenSpec.parse(data.spec))
        evaluation = context.reports["evaluation"]
    yield Result(f"pairwise F1, {data.name}", "", evaluation["pairwise"]["f1"], bar=data.bar)
    yield Result(f"B³ F1, {data.name}", "", evaluation["b3"]["f1"])
    yield Result(f"blocking recall, {data.name}", "", evaluation["blocking_recall"])


def _catalogue(spark: SparkSession, data: DataSet, options: Options) -> Iterator[Result]:
    options.say(f"{data.name}: linked without configuration")
    with _opened_context(spark, data) as context:
        began = perf_counter()
        context.execute(OpenSpec.parse(data.spec))
        spent = perf_counter() - began
        pairwise, trust = context.reports["evaluation"]["pairwise"], context.reports["trust"]
    yield Result(f"precision, {data.name}", "", pairwise["precision"])
    yield Result(
        f"precision estimated without labels, {data.name}", "", trust["estimated_precision"]
    )
    yield Result(f"recall, {data.name}", "", pairwise["recall"])
    yield Result(f"pairwise F1, {data.name}", "", pairwise["f1"], bar=data.bar)
    yield Result(f"end to end, {data.name}", "s", spent)


def _times(spark: SparkSession, data: DataSet, options: Options) -> Iterator[Result]:
    spec = OpenSpec.parse(_SPEC)
    with _opened_context(spark, data) as context:
        options.say(f"{data.name}: Portolan, then Splink on DuckDB and on Spark")
        began = perf_counter()
        context.execute(spec)
        own = perf_counter() - began
        table = comparison_columns(context.output("records"), spec)
        duck = seconds(table.toArrow(), spec, DuckDBAPI())
        api: Any = SparkAPI
        other = seconds(table, spec, api(spark_session=spark))
    name = f"{data.name}, end to end"
    yield Result(f"{name}, against Splink on DuckDB", "s", own, duck, small_is_good=True)
    yield Result(f"{name}, against Splink on Spark", "s", own, other, small_is_good=True)


def _end_to_end(spark: SparkSession, data: DataSet, options: Options) -> Result:
    options.say(f"{data.name}: end to end")
    with _opened_context(spark, data) as context:
        began = perf_counter()
        context.execute(OpenSpec.parse(_SPEC))
        spent = perf_counter() - began
    return Result(f"{data.name}, {sum(map(len, data.tables.values())):,} records", "s", spent)
