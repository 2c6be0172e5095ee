"""Standing queries on Spark: one query that shares, against a stream-stream join for each.

Five and ten overlapping queries over TPC-H as streams drain the same backlog: by the shared plan,
by a plan for each query (to isolate the savings of sharing), and by Spark's stream-stream joins.
All have the same batches, partitions, windows and session, and all queries of a side run at the
same time. State is the maximum of stored rows. A figure counts only if all three sides have the
same results over the beginning of the backlog.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.spark_session import opened_session
from benchmarks.harness.stream_joins import start_stream_join
from benchmarks.harness.tpch_streams import (
    FIVE,
    LATENESS_S,
    TEN,
    WINDOW_S,
    tpch_workload,
    write_backlog,
)
from mediator.standing.planning import Mode, Plan, PlanOptions, make_plans
from spark_jobs.sources.stream_ranges import TUPLES
from spark_jobs.standing.commits import Commit, StateDirectory
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.streaming import start

__all__ = ["run"]

_PARTITIONS: Final = 4
_CONF: Final = {
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": str(_PARTITIONS),
}
_TRIGGER: Final = {"availableNow": True}
_PLAN_OPTIONS: Final = PlanOptions(materialise=False)
_BAR_THROUGHPUT: Final = 2.0
_BAR_STATE: Final = 0.4


@dataclass(frozen=True, slots=True)
class _DrainResult:
    """The seconds of draining a backlog, and the maximum of stored rows."""

    seconds: float
    state_rows: int


async def run(options: Options) -> Measured:
    return Measured(await asyncio.to_thread(lambda: list(_results(options))))


def _results(options: Options) -> Iterator[Result]:
    rows, batch = (10_000, 5_000) if options.quick else (1_000_000, 50_000)
    checked_rows = min(rows, 2 * batch)
    scratch = TemporaryDirectory(prefix="portolan-bench-")
    with scratch as folder, opened_session(_CONF) as session:
        bench = _Bench(session, Path(folder), options)
        write_backlog(bench.folder / "checked", checked_rows, batch, options.seed)
        write_backlog(bench.folder / "backlog", rows, batch, options.seed)
        for queries in (FIVE,) if options.quick else (FIVE, TEN):
            bench.check(queries)
            yield from bench.compare(queries, rows)


class _Bench:
    def __init__(self, session: SparkSession, folder: Path, options: Options) -> None:
        self.folder = folder
        self._session = session
        self._options = options
        self._runs = 0

    def check(self, queries: Mapping[str, Sequence[str]]) -> None:
        """Compare the results of all sides, which also warms up the session."""
        results = []
        for side in (self._shared, self._individual, self._spark):
            path = self._new_folder()
            side(queries, "checked", path)
            results.append(_read_results(path, queries))
        shared, individual, spark = results
        if shared != spark or individual != spark:
            raise Failed(
                f"the sides differ: {shared.total():,}, {individual.total():,} and"
                f" {spark.total():,} results"
            )
        self._options.note(f"{len(queries)} queries: the same {spark.total():,} results")

    def compare(self, queries: Mapping[str, tuple[str, ...]], rows: int) -> Iterator[Result]:
        name = f"{len(queries)} queries"
        shared = self._shared(queries, "backlog", self._new_folder())
        individual = self._individual(queries, "backlog", self._new_folder())
        spark = self._spark(queries, "backlog", self._new_folder())
        for side, result in (("shared", shared), ("individual", individual), ("Spark", spark)):
            self._options.note(
                f"{name}, {side}: {result.seconds:.1f} s, {result.state_rows:,} rows stored"
            )
        throughput, baseline = rows / shared.seconds, rows / spark.seconds
        yield Result(f"{name}, shared", "tuples/s", throughput, baseline, bar=_BAR_THROUGHPUT)
        yield Result(f"{name}, a plan each", "tuples/s", rows / individual.seconds, baseline)
        state, spark_state = shared.state_rows, spark.state_rows
        yield Result(
            f"{name}, state, shared", "rows", state, spark_state, bar=_BAR_STATE, small_is_good=True
        )
        yield Result(
            f"{name}, state, a plan each",
            "rows",
            individual.state_rows,
            spark_state,
            small_is_good=True,
        )

    def _shared(self, queries: Mapping[str, Any], backlog: str, path: Path) -> _DrainResult:
        return self._ours("shared", queries, backlog, path)

    def _individual(self, queries: Mapping[str, Any], backlog: str, path: Path) -> _DrainResult:
        return self._ours("individual", queries, backlog, path)

    def _ours(
        self, mode: Mode, queries: Mapping[str, Any], backlog: str, path: Path
    ) -> _DrainResult:
        plans = _plans(mode, queries)
        max_rows = [0] * len(plans)
        with ExitStack() as stack:
            started = perf_counter()
            running = []
            for number, plan in enumerate(plans):
                directory = StateDirectory(path / str(number))
                stack.enter_context(directory.locked())
                joins = SharedJoins(directory, plan, WINDOW_S, LATENESS_S)
                tuples = self._tuples(backlog)
                tuples = tuples.where(tuples["stream"].isin(*plan.workload.streams))
                count = _maximum(max_rows, number)
                running.append(start(joins, tuples, count, _TRIGGER))
            seconds = _await_end(running, started)
        return _DrainResult(seconds, sum(max_rows))

    def _spark(self, queries: Mapping[str, Any], backlog: str, path: Path) -> _DrainResult:
        started = perf_counter()
        running = [
            start_stream_join(self._tuples(backlog), predicates, path / name, _TRIGGER)
            for name, predicates in queries.items()
        ]
        seconds = _await_end(running, started)
        return _DrainResult(seconds, sum(map(_max_state_rows, running)))

    def _tuples(self, backlog: str) -> DataFrame:
        stream = self._session.readStream.schema(from_arrow_schema(TUPLES))
        return stream.option("maxFilesPerTrigger", 1).parquet(str(self.folder / backlog))

    def _new_folder(self) -> Path:
        self._runs += 1
        return self.folder / f"run{self._runs}"


def _plans(mode: Mode, queries: Mapping[str, Any]) -> list[Plan]:
    if mode == "individual":
        return [
            plan
            for name, predicates in queries.items()
            for plan in _plans("shared", {name: predicates})
        ]
    return make_plans(tpch_workload(queries, _PARTITIONS), mode, _PLAN_OPTIONS)


def _maximum(max_rows: list[int], number: int) -> Callable[[Commit], None]:
    def count(commit: Commit) -> None:
        max_rows[number] = max(max_rows[number], commit.rows)

    return count


def _await_end(queries: Sequence[StreamingQuery], started: float) -> float:
    for query in queries:
        query.awaitTermination()
    return perf_counter() - started


def _max_state_rows(query: StreamingQuery) -> int:
    batches = (
        sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        for progress in query.recentProgress
    )
    return max(batches, default=0)


def _read_results(path: Path, queries: Mapping[str, Any]) -> Counter[tuple[Any, ...]]:
    """Return all results of a side, from all its files."""
    results: Counter[tuple[Any, ...]] = Counter()
    for folder in path.rglob("results"):
        table = ds.dataset(folder, format="parquet", partitioning=None).to_table()
        # Each query of Spark's joins has its own folder.
        name = folder.parent.name
        if len(table) == 0:
            continue
        if name in queries:
            table = table.append_column("query", pa.array([name] * len(table)))
        rows = zip(*(table.column(column).to_pylist() for column in _COLUMNS), strict=True)
        results.update(
            (query, tuple(numbers), tuples, time_s) for query, numbers, tuples, time_s in rows
        )
    return results


_COLUMNS: Final = ("query", "numbers", "tuples", "time_s")
