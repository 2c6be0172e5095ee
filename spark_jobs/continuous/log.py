"""A log of tuples, divided into one file for each micro-batch.

Slides are numbered from time 0: number k is at k times the length of a slide. A file ends before
the first tuple after the end of its trigger, and completes all slides up to there. So a batch does
not depend on when, or how often, it is executed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mediator.continuous.model import Query, Stream, ValueType
from mediator.continuous.statement import BATCH, FROM
from spark_jobs.atomic_file import atomic_file

__all__ = [
    "ARROW",
    "ORDER",
    "STREAM",
    "TIME",
    "LogUnfit",
    "Tuple",
    "TupleLog",
    "as_slide",
    "microseconds",
]

STREAM: Final = "_stream"
ORDER: Final = "_order"
TIME: Final = "_time"

MAX_SLIDES: Final = 100
"""Maximum slides of a batch, unless a trigger has more."""

MAX_GAP_SLIDES: Final = 10_000
"""Maximum slides without arrivals; each has a result while its windows hold rows."""

_FILE_NS: Final = 10_000_000
"""Nanoseconds between the times of two files; Spark ignores files a week older than another."""

_MICROSECONDS: Final = 1_000_000
ARROW: Final = {
    ValueType.INTEGER: pa.int64(),
    ValueType.NUMBER: pa.float64(),
    ValueType.STRING: pa.string(),
}

Tuple = tuple[str, float, Mapping[str, float | str]]
"""A stream, a time in seconds, and values."""


class LogUnfit(ValueError):
    """The log cannot be executed; says why."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The slides that a batch completes; none if `last` is before `first`."""

    first: int
    last: int


class TupleLog:
    """The files of a log, in a separate directory.

    Args:
        trigger_s: Seconds of arrivals in a batch, a multiple of a slide.
    """

    def __init__(self, directory: Path, query: Query, trigger_s: float) -> None:
        self._files, self._summary_file = directory / "batches", directory / "log.json"
        self._streams = {name: number for number, name in enumerate(query.streams)}
        self._query = query
        self.slide_us = microseconds(query.slide_s)
        self.trigger_us = microseconds(trigger_s)

    @property
    def files(self) -> Path:
        return self._files

    @property
    def schema(self) -> pa.Schema:
        """The columns of all files; a stream's columns are null in tuples of other streams."""
        common = [(name, pa.int64()) for name in (STREAM, ORDER, TIME, FROM, BATCH)]
        return pa.schema(common + [(name, kind) for name, kind in self._fields()])

    def column(self, stream: str, field: str) -> str:
        return f"s{self._streams[stream]}_{field}"

    def number(self, stream: str) -> int:
        return self._streams[stream]

    @property
    def is_written(self) -> bool:
        return self._summary_file.exists()

    def completed(self) -> list[Completed]:
        """Return the slides that each batch completes."""
        return [Completed(*slides) for slides in self._summary()["completed"]]

    @property
    def late(self) -> int:
        """The number of tuples dropped because earlier batches completed their slides."""
        return int(self._summary()["late"])

    def write(self, tuples: Iterable[Tuple]) -> None:
        """Write all files of a log, before anything is executed.

        Raises:
            LogUnfit: A gap is too long.
        """
        shutil.rmtree(self._files, ignore_errors=True)
        self._files.mkdir(parents=True)
        writer = _Writer(self)
        for tuple_ in tuples:
            writer.add(tuple_)
        writer.end()
        summary = {"completed": writer.completed, "late": writer.late}
        with atomic_file(self._summary_file) as file:
            file.write(orjson.dumps(summary))

    def _summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = orjson.loads(self._summary_file.read_bytes())
        return summary

    def _fields(self) -> Iterable[tuple[str, pa.DataType]]:
        for name, stream in self._query.streams.items():
            for field, kind in stream.fields.items():
                yield self.column(name, field), ARROW[kind]

    def trigger_end(self, time_us: int) -> int:
        """Return the end of the trigger that contains a time."""
        return as_slide(time_us, self.trigger_us) * self.trigger_us

    @property
    def streams(self) -> Mapping[str, Stream]:
        return self._query.streams


def as_slide(time_us: int, slide_us: int) -> int:
    """Return the number of the first slide at or after a time."""
    return -(-time_us // slide_us)


class _Writer:
    def __init__(self, log: TupleLog) -> None:
        self._log = log
        self._schema = log.schema
        self._names = {
            name: [(field, log.column(name, field)) for field in stream.fields]
            for name, stream in log.streams.items()
        }
        self._batch: list[dict[str, Any]] = []
        self._order = 0
        self._end: int | None = None
        self._latest = 0
        self._last_slide: int | None = None
        self.completed: list[tuple[int, int]] = []
        self.late = 0

    def add(self, tuple_: Tuple) -> None:
        stream, time_s, values = tuple_
        time_us = microseconds(time_s)
        if self._end is None:
            self._end = self._log.trigger_end(time_us)
            self._last_slide = as_slide(time_us, self._log.slide_us) - 1
            self._latest = time_us
        if time_us > self._end:
            self._check_gap(time_us)
            self._latest = time_us
            self._cut_before(time_us)
        from_ = as_slide(time_us, self._log.slide_us)
        assert self._last_slide is not None
        if from_ <= self._last_slide:
            self.late += 1
            return
        self._latest = max(self._latest, time_us)
        self._order += 1
        row = {column: values[field] for field, column in self._names[stream]}
        common = {STREAM: self._log.number(stream), ORDER: self._order, TIME: time_us, FROM: from_}
        self._batch.append({**row, **common, BATCH: len(self.completed)})

    def end(self) -> None:
        if self._batch:
            self._cut()

    def _cut_before(self, time_us: int) -> None:
        """End the batch with its trigger, and write empty batches for a gap."""
        assert self._end is not None
        self._cut()
        end = self._log.trigger_end(time_us)
        step = self._log.trigger_end(MAX_SLIDES * self._log.slide_us)
        while self._end < end - self._log.trigger_us:
            self._end = min(self._end + step, end - self._log.trigger_us)
            self._cut()
        self._end = end

    def _cut(self) -> None:
        """Write a batch, which completes the slides before the latest time, up to its end."""
        assert self._end is not None
        assert self._last_slide is not None
        slide_us = self._log.slide_us
        before = as_slide(self._latest, slide_us) - 1
        last = max(self._last_slide, min(before, self._end // slide_us))
        number = len(self.completed)
        path = self._log.files / f"{number:09}.parquet"
        pq.write_table(pa.Table.from_pylist(self._batch, self._schema), path)
        # Spark orders files by their times in milliseconds, and files of the same millisecond have
        # no order.
        time_ns = (number + 1) * _FILE_NS
        os.utime(path, ns=(time_ns, time_ns))
        self.completed.append((self._last_slide + 1, last))
        self._batch, self._last_slide = [], last

    def _check_gap(self, time_us: int) -> None:
        assert self._end is not None
        slides = (time_us - self._end) // self._log.slide_us
        if slides > MAX_GAP_SLIDES:
            raise LogUnfit(
                f"tuple {self._order + self.late + 1:,} is {slides:,} slides behind the one before:"
                f" more than {MAX_GAP_SLIDES:,}"
            )


def microseconds(seconds: float) -> int:
    return round(seconds * _MICROSECONDS)
