"""Streams as inputs of Structured Streaming: a Python Data Source, in partitions, by exact offsets.

**Offsets.** A batch is the range between two offsets, and a repeated read yields the same rows as
long as they are stored. The first offset of a query also includes the query's start: if the query
ends before its first commit, `latest` is a different offset at the restart.

**Secrets.** A plan has names and ids only. A task finds the coordination Redis in the environment
of its worker (``PORTOLAN_COORDINATION_URL``); the planning process also finds the catalogue there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.sources.stream_ranges import (
    CHANGES,
    TUPLES,
    ChangesRange,
    TuplesRange,
    changes_in,
    tuples_in,
)
from spark_jobs.sources.stream_request import COORDINATION, Offset, StreamRequest, environment

if TYPE_CHECKING:
    from spark_jobs.sources.stream_planning import OpenStream

__all__ = ["StreamData"]

_INITIAL: Final = "initial"
"""The member of a query's first offset with the offset at which it started."""


class StreamData(DataSource):
    """The data source: an event stream, or the changes of a class."""

    @classmethod
    def name(cls) -> str:
        return "portolan-stream"

    def schema(self) -> StructType:
        return from_arrow_schema(TUPLES if self._request.stream is not None else CHANGES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return _StreamReader(self._request, schema)

    @property
    def _request(self) -> StreamRequest:
        return StreamRequest.of({name.lower(): text for name, text in self.options.items()})


class _StreamReader(DataSourceStreamReader):
    """Plans in one process for the lifetime of the query, and reads in other processes."""

    def __init__(self, request: StreamRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._stream: OpenStream | None = None
        self._initial: Offset | None = None
        self._last_end: Offset | None = None
        """The end of the last planned batch; None: there is none."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        if self._initial is None:
            self._initial = self._open_stream.starting_at(self._request.starting_at)
        return self._initial

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return the end of the next batch; in a resumed query `partitions` set the last one."""
        is_first = self._last_end is None
        start = self.initialOffset() if self._last_end is None else _without_initial(self._last_end)
        latest = self._open_stream.latest(start, self._request.max_per_trigger)
        if is_first:
            return {**latest, _INITIAL: start}
        # Spark compares all members: the first offset must not change while nothing arrives.
        return self._last_end if self._last_end is not None and latest == start else latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # At a restart, Spark calls this with the last offset that it knows.
        self._last_end = end
        if _INITIAL in end:
            self._initial = end[_INITIAL]
        if _without_initial(start) == _without_initial(end):
            return []
        return self._open_stream.ranges(_without_initial(start), _without_initial(end))

    def commit(self, end: Offset) -> None:
        self._open_stream.consumed(_without_initial(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TuplesRange | ChangesRange)
        schema = to_arrow_schema(self._schema)
        batches = _read(partition, fail_on_loss=self._request.fail_on_loss)
        with asyncio.Runner() as runner:
            try:
                while (batch := runner.run(_next_batch(batches))) is not None:
                    yield batch.cast(schema)
            finally:
                runner.run(batches.aclose())

    @property
    def _open_stream(self) -> OpenStream:
        # Spark starts several processes for a query, and only the planning one needs this import.
        from spark_jobs.sources.stream_planning import OpenStream  # noqa: PLC0415

        if self._stream is None:
            self._stream = OpenStream(self._request)
        return self._stream


async def _read(
    range_: TuplesRange | ChangesRange, *, fail_on_loss: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    from mediator.coordination.connecting import Coordination  # noqa: PLC0415 - only of tasks

    coordination = Coordination(environment(COORDINATION))
    try:
        if isinstance(range_, TuplesRange):
            batches = tuples_in(coordination.event_streams, range_, fail_on_loss=fail_on_loss)
        else:
            batches = changes_in(coordination.feed, range_, fail_on_loss=fail_on_loss)
        async for batch in batches:
            yield batch
    finally:
        await coordination.close()


async def _next_batch(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


def _without_initial(offset: Offset) -> Offset:
    return {name: value for name, value in offset.items() if name != _INITIAL}
