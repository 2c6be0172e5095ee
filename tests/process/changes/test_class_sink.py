"""Results written into classes: through the guard, each once, even if repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mediator.base.errors import NotFound
from mediator.model.operations import Delete
from spark_jobs.runner.job import Into
from spark_jobs.runner.port import InputUnfit, RunCancelled, StageContext
from spark_jobs.runner.results import ResultFiles
from spark_jobs.sinks import classes
from spark_jobs.sinks.classes import ClassSink
from tests.process.service import Service, field_on, inc, unique

ROWS = 12


class CountingContext:
    """A context that counts, and cancels the run after some rows."""

    def __init__(self, max_rows: int = ROWS + 1) -> None:
        self.counters: dict[str, int] = {}
        self._max_rows = max_rows

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def progress(self, done: int, total: int) -> None:
        assert total == ROWS
        if done >= self._max_rows:
            raise RunCancelled


class Target:
    """A class over two systems, and a result for it."""

    def __init__(self, running: Service, database: str, directory: Path) -> None:
        self.running = running
        self.database = database
        self.directory = directory
        self.result_name = unique("result")
        self.sink = ClassSink(running.mediator.data, asyncio.get_running_loop())

    def result(self, **columns: Sequence[Any]) -> None:
        pq.write_table(pa.table(cast("Any", columns)), self.directory / "part-0.parquet")

    async def write(self, context: CountingContext, class_name: str = "links", *id_: str) -> None:
        into = Into.parse(
            {
                "class": class_name,
                "database": self.database,
                "id": [*(id_ or ("left", "right"))],
            }
        )
        files = ResultFiles(self.directory)
        await asyncio.to_thread(
            self.sink.write, cast("StageContext", context), self.result_name, into, files
        )

    async def values(self, id_: str) -> Mapping[str, Any] | None:
        return await self.running.values(self.database, "links", id_)


@pytest.fixture
async def target(mediator: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(classes, "BATCH_OPERATIONS", 5)
    fields = {
        "left": field_on("postgres"),
        "score": field_on("postgres", "float"),
        "hits": field_on("redis", "integer", group="hits", default=7),
    }
    new_target = Target(
        mediator, await mediator.put_schema({"links": {"fields": fields}}), tmp_path
    )
    new_target.result(
        left=[f"l{n}" for n in range(ROWS)],
        right=[f"r{n}" for n in range(ROWS)],
        score=[None, *(n / 2 for n in range(1, ROWS))],
    )
    return new_target


async def test_rows_become_objects(target: Target) -> None:
    context = CountingContext()
    await target.write(context)
    assert context.counters == {"written": ROWS}
    assert await target.values("l0,r0") == {"left": "l0", "hits": 7}
    assert await target.values("l3,r3") == {"left": "l3", "score": 1.5, "hits": 7}


async def test_a_file_is_read_once_however_many_requests_its_rows_take(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once before, for the ids only."""
    paths: list[Path] = []
    open_ = pq.ParquetFile

    def open_recorded(path: Path) -> pq.ParquetFile:
        paths.append(path)
        return open_(path)

    monkeypatch.setattr(pq, "ParquetFile", open_recorded)
    await target.write(CountingContext())
    assert len(paths) == 2


async def test_a_repeated_write_is_not_applied_again(target: Target) -> None:
    with pytest.raises(RunCancelled):
        await target.write(CountingContext(max_rows=5))
    data = target.running.mediator.data
    await data.write(inc(target.database, "links", "l1,r1"))
    await target.write(CountingContext())
    assert (await target.values("l1,r1") or {})["hits"] == 8
    assert await target.values("l11,r11") is not None
    await data.write(Delete(target.database, "links", "l2,r2", unique("op")))
    target.result_name = unique("result")
    await target.write(CountingContext())
    assert (await target.values("l1,r1") or {})["hits"] == 7
    assert await target.values("l2,r2") is not None


async def test_a_recomputed_result_is_written_completely(target: Target) -> None:
    """Its rows can differ if the run resumed without its files."""
    with pytest.raises(RunCancelled):
        await target.write(CountingContext(max_rows=5))
    target.result(
        left=[f"l{n}" for n in range(ROWS)],
        right=[f"r{n}" for n in range(ROWS)],
        score=[n * 10.0 for n in range(ROWS)],
    )
    target.result_name = unique("result")
    await target.write(CountingContext())
    scores = [(await target.values(f"l{n},r{n}") or {})["score"] for n in range(ROWS)]
    assert scores == [n * 10.0 for n in range(ROWS)]


async def test_rows_that_are_no_objects(target: Target) -> None:
    with pytest.raises(InputUnfit, match="no column other"):
        await target.write(CountingContext(), "links", "other")
    with pytest.raises(InputUnfit, match="no field right"):
        await target.write(CountingContext(), "links", "left")
    target.result(left=["a/b"] * ROWS, right=[f"r{n}" for n in range(ROWS)])
    with pytest.raises(InputUnfit, match="not a valid object"):
        await target.write(CountingContext())
    target.result(left=["a"] * ROWS, right=["x"] * ROWS, hits=["many"] * ROWS)
    with pytest.raises(InputUnfit, match="hits"):
        await target.write(CountingContext())


@pytest.mark.parametrize(
    ("left", "right", "id_"),
    [
        (["a", "a"], ["b", "b"], "a,b"),
        (["a,b", "a"], ["c", "b,c"], "a,b,c"),
        ([None, ""], ["c", "c"], ",c"),
    ],
)
async def test_a_result_with_an_id_of_two_rows_is_not_written(
    target: Target, left: list[str | None], right: list[str], id_: str
) -> None:
    """The rows are on different pages, behind rows that could be written."""
    numbers = range(ROWS - 2)
    target.result(
        left=[left[0], *(f"l{n}" for n in numbers), left[1]],
        right=[right[0], *(f"r{n}" for n in numbers), right[1]],
    )
    with pytest.raises(InputUnfit, match=f"two rows have the id '{id_}', made of left, right"):
        await target.write(CountingContext())
    with pytest.raises(NotFound):
        await target.values("l0,r0")
