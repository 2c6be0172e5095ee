"""Executes batches without Spark: the same tasks, with a list in place of each exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mediator.standing.planning import Plan, PlanOptions, make_plans
from mediator.standing.state import StreamTuple
from spark_jobs.standing.chunks import CHUNKS, REPORTS
from spark_jobs.standing.commits import Commit, StateDirectory
from spark_jobs.standing.reports import Report
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.tasks import execute, read, read_history
from spark_jobs.standing.work import Work
from tests.unit.standing.papers_queries import workload

PositionedTuple = tuple[int, StreamTuple]
"""A tuple and its feed position."""


def plan_of(document: dict[str, Any], **options: Any) -> Plan:
    (plan,) = make_plans(workload(document), "shared", PlanOptions(**options))
    return plan


class InProcess:
    """Standing queries over a directory.

    Args:
        draw: Shuffles the tuples and chunks that arrive at tasks; results must not depend on it.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        retention_s: float = 10.0,
        lateness_s: float = 0.0,
        draw: Random | None = None,
    ) -> None:
        self.joins = SharedJoins(StateDirectory(path), plan, retention_s, lateness_s)
        self._draw = draw or Random(1)

    def feed(self, batch: int, tuples: Sequence[PositionedTuple]) -> Commit:
        rows = list(tuples)
        self._draw.shuffle(rows)
        halves = [_batch(rows[::2]), _batch(rows[1::2])]

        def over_tuples(work: Work) -> Report:
            chunks = [chunk for half in halves for chunk in read(work, [half])]
            return self._levels(work, chunks)

        def over_history(work: Work) -> Report:
            return self._levels(work, read_history(work, range(work.parallelism)))

        with self.joins.directory.locked():
            return self.joins.process(batch, over_tuples, over_history)

    def _levels(self, work: Work, chunks: Iterable[pa.RecordBatch]) -> Report:
        for level in range(1, work.hops.levels + 1):
            chunks = self._exchange(work, level, list(chunks))
        reports = pa.Table.from_batches(list(chunks), CHUNKS)
        assert set(reports.column("level").to_pylist()) <= {REPORTS}
        return Report.total(reports.column("rows").to_pylist())

    def _exchange(
        self, work: Work, level: int, chunks: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(chunks, CHUNKS)
        order = list(range(len(table)))
        self._draw.shuffle(order)
        table = table.take(pa.array(order, pa.int64()))
        for group in range(work.parallelism):
            group_chunks = table.filter(pc.equal(table.column("group"), group))
            yield from execute(work, level, group_chunks.to_batches())


def results_in(path: Path, batch: int | None = None) -> list[dict[str, Any]]:
    """Read the committed results of one batch or of all batches."""
    pattern = "batch=*" if batch is None else f"batch={batch}"
    files = sorted((path / "results").glob(f"{pattern}/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def _batch(rows: Sequence[PositionedTuple]) -> pa.RecordBatch:
    columns = {
        "stream": pa.array([tuple_.stream for _, tuple_ in rows], pa.string()),
        "number": pa.array([number for number, _ in rows], pa.int64()),
        "time_s": pa.array([float(tuple_.time_s) for _, tuple_ in rows], pa.float64()),
        "values": pa.array(
            [orjson.dumps(tuple_.values).decode() for _, tuple_ in rows], pa.string()
        ),
    }
    return pa.record_batch(columns)
