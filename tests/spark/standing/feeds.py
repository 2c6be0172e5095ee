"""Feeds as files for streaming queries, and what the reference runtime makes of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mediator.standing.planning import Plan
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from spark_jobs.standing.commits import Commit, StateDirectory
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.streaming import end, file_tuples, start
from tests.unit.standing.papers_queries import EXAMPLE_2

LETTERS = {"R": "b", "S": "bc", "T": "cd", "U": "d"}
DOCUMENT = {**EXAMPLE_2, "parallelism": 3}
COUNT = 120


def drawn(first: int, draw: Random) -> list[tuple[int, StreamTuple]]:
    tuples = []
    for number in range(first, first + COUNT):
        stream = draw.choice("RSTU")
        values = {name: draw.choice([1, 2.0, 3, "3", None]) for name in LETTERS[stream]}
        tuples.append((number, StreamTuple(stream, number / 100, values)))
    return tuples


def write(folder: Path, tuples: list[tuple[int, StreamTuple]], draw: Random) -> None:
    """Write a file, which is a batch; its rows are in any order."""
    rows = [
        {
            "stream": each.stream,
            "number": number,
            "time_s": each.time_s,
            "values": orjson.dumps(each.values).decode(),
        }
        for number, each in draw.sample(tuples, len(tuples))
    ]
    folder.mkdir(exist_ok=True)
    name = f"{tuples[0][0]:06d}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), folder / f".{name}")
    # Files are taken in the order of their times.
    os.utime(folder / f".{name}", (tuples[0][0], tuples[0][0]))
    (folder / f".{name}").rename(folder / name)


def run(spark: SparkSession, path: Path, plan: Plan) -> Commit:
    """Execute all files that are there; each is a batch."""
    directory = StateDirectory(path / "state")
    with directory.locked():
        joins = SharedJoins(directory, plan, 1.0, 0.0)
        tuples = file_tuples(spark, path / "tuples", "parquet", 1)
        end(start(joins, tuples, lambda _: None, {"availableNow": True}))
        return directory.latest()


def numbered(results: list[Any]) -> Counter[Any]:
    return Counter((row["query"], tuple(row["numbers"])) for row in results)


def reference_results(runtime: Runtime, tuples: list[tuple[int, StreamTuple]]) -> Iterator[Any]:
    number = {id(each): position for position, each in tuples}
    for result in runtime.feed([each for _, each in tuples]):
        members = (number[id(each)] for _, each in sorted(result.tuples.items()))
        yield result.query, tuple(members)
