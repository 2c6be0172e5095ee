"""Feeds as files for streaming queries, and the reference runtime's results for them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from spark_jobs.standing.streaming import file_tuples, start
from spark_jobs.streaming_queries import end
from tests.unit.standing.papers_queries import EXAMPLE_2

ATTRIBUTES = {"R": "b", "S": "bc", "T": "cd", "U": "d"}
DOCUMENT = {**EXAMPLE_2, "parallelism": 3}
COUNT = 120
RATE = 100


def random_tuples(first: int, draw: Random) -> list[tuple[int, StreamTuple]]:
    tuples = []
    for number in range(first, first + COUNT):
        stream = draw.choice("RSTU")
        values = {name: draw.choice([1, 2.0, 3, "3", None]) for name in ATTRIBUTES[stream]}
        tuples.append((number, StreamTuple(stream, number / RATE, values)))
    return tuples


def write(folder: Path, tuples: list[tuple[int, StreamTuple]], draw: Random) -> None:
    """Write a batch as a Parquet file, with its rows in random order."""
    rows = [
        {
            "stream": tuple_.stream,
            "number": number,
            "time_s": tuple_.time_s,
            "values": orjson.dumps(tuple_.values).decode(),
        }
        for number, tuple_ in draw.sample(tuples, len(tuples))
    ]
    with _file(folder, tuples[0][0], "parquet") as path:
        pq.write_table(pa.Table.from_pylist(rows), path)


def write_json(folder: Path, tuples: list[tuple[int, StreamTuple]], draw: Random) -> None:
    """Write a batch as a file of JSON lines, in random order."""
    lines = [
        orjson.dumps({"number": number, **asdict(tuple_)}) + b"\n"
        for number, tuple_ in draw.sample(tuples, len(tuples))
    ]
    with _file(folder, tuples[0][0], "json") as path:
        path.write_bytes(b"".join(lines))


@contextmanager
def _file(folder: Path, number: int, suffix: str) -> Iterator[Path]:
    """Add a file atomically; its modification time gives its order."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{number:06d}.{suffix}"
    yield hidden
    os.utime(hidden, (number, number))
    hidden.rename(folder / hidden.name.removeprefix("."))


def run(spark: SparkSession, path: Path, plan: Plan, format_: str = "parquet") -> Commit:
    """Process all available files; each is a batch."""
    directory = StateDirectory(path / "state")
    with directory.locked():
        joins = SharedJoins(directory, plan, 1.0, 0.0)
        tuples = file_tuples(spark, path / "tuples", format_, 1)
        end(start(joins, tuples, lambda _: None, {"availableNow": True}))
        return directory.latest()


def count_results(results: list[Any]) -> Counter[Any]:
    return Counter((row["query"], tuple(row["numbers"])) for row in results)


def reference_results(runtime: Runtime, tuples: list[tuple[int, StreamTuple]]) -> Iterator[Any]:
    for result in runtime.feed([tuple_ for _, tuple_ in tuples]):
        members = (tuple_ for _, tuple_ in sorted(result.tuples.items()))
        yield result.query, tuple(round(member.time_s * RATE) for member in members)
