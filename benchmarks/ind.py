"""Inclusion dependencies of TPC-H: the same as DuckDB's, their time, and its growth.

Time is that of a whole run, with statistics, ranking and proposals. A Bloom filter before the
shuffle would process each value once to add it, and at least once to test it: that rate is compared
with the rate of the shuffles, the most that the filter could save.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import pyarrow.parquet as pq
from pybloom_live import BloomFilter  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from app.commands.demo.failed import Failed
from benchmarks.harness.competitors import generate_tpch
from benchmarks.harness.duckdb_inclusions import duckdb_inclusions
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.spark_session import CORES, opened_session
from benchmarks.harness.whole_run import whole_run
from spark_jobs.session import LazySession

__all__ = ["run"]

_CONF: Final = {"spark.sql.shuffle.partitions": "16"}
_BAR_GROWTH: Final = 12.0
_BAR_S: Final = 132.0
"""SPIDER on one machine, as published (docs/papers/ind.md)."""
_FILTERED_VALUES: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Run:
    """A run: its pairs, its seconds, those of the two shuffles, and the values read."""

    pairs: set[tuple[str, str]]
    seconds: float
    shuffles_s: float
    cells: int


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    scales = (0.1, 1.0) if options.full else (0.01,) if options.quick else (0.01, 0.1)
    scratch = TemporaryDirectory(prefix="portolan-bench-")
    with scratch as folder, opened_session(_CONF) as session:
        return Measured(list(_results(session, Path(folder), scales, options)))


def _results(
    spark: SparkSession, scratch: Path, scales: tuple[float, ...], options: Options
) -> list[Result]:
    results: list[Result] = []
    runs: list[_Run] = []
    folder = scratch
    for scale in scales:
        folder = scratch / f"sf{scale:g}"
        generate_tpch(scale, folder)
        ours = _ours(spark, folder, scratch / f"run{scale:g}")
        theirs, their_seconds = duckdb_inclusions(folder)
        if ours.pairs != theirs:
            raise Failed(f"the two differ by {sorted(ours.pairs ^ theirs)}")
        options.note(f"SF {scale:g}: the same {len(theirs)} dependencies on both sides")
        name = f"TPC-H SF {scale:g}"
        bar = _BAR_S if scale == 1 else None
        results.append(Result(f"{name}, whole run", "s", ours.seconds, bar=bar, small_is_good=True))
        results.append(Result(f"{name}, two shuffles", "s", ours.shuffles_s))
        results.append(Result(f"{name}, differences by DuckDB", "s", their_seconds))
        runs.append(ours)
    if len(runs) > 1:
        growth = runs[1].seconds / runs[0].seconds
        bar = _BAR_GROWTH if options.full else None
        name = "time for ten times the data"
        results.append(Result(name, "", growth, bar=bar, small_is_good=True))
    if not options.quick:  # with few values, only Spark's overhead would be compared
        results.append(_prefilter(folder, runs[-1]))
    return results


def _ours(spark: SparkSession, folder: Path, path: Path) -> _Run:
    files = sorted(folder.glob("*.parquet"))
    inputs = {file.stem: {"file": str(file)} for file in files}
    run = whole_run("profile.ind", {"inputs": inputs}, path, LazySession.of(spark))
    rows: list[dict[str, Any]]
    rows, _ = run.result.page((0, 0), 10_000)
    pairs = {(_name(row, "dependent"), _name(row, "referenced")) for row in rows}
    metadata = [pq.read_metadata(file) for file in files]
    cells = sum(table.num_rows * table.num_columns for table in metadata)
    return _Run(pairs, run.seconds, run.directory.stages["overlaps"].seconds, cells)


def _name(row: dict[str, Any], side: str) -> str:
    return f"{row[f'{side}_table']}.{row[side][0]}"


def _prefilter(folder: Path, ours: _Run) -> Result:
    """Compare the rates of one core: values through a filter, and through the shuffles."""
    comments = pq.read_table(folder / "orders.parquet", columns=["o_comment"])
    values = comments.column(0).slice(0, _FILTERED_VALUES).to_pylist()
    filter_ = BloomFilter(len(values), 0.01)
    began = perf_counter()
    for value in values:
        filter_.add(value)
    sum(value in filter_ for value in values)
    rate = len(values) / (perf_counter() - began)
    shuffled = ours.cells / ours.shuffles_s / CORES
    return Result("values through a Bloom filter, against the shuffles", "1/s", rate, shuffled)
