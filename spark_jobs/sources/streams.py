"""Streams as inputs of Structured Streaming: a Python Data Source, in partitions, by exact offsets.

**Offsets.** A batch is what is between two offsets, and reading it again yields the same rows for
as long as they are kept. The first offset of a query also names where the query began: if it ends
before its first batch is committed, `latest` is another offset by the time it starts again.

**Secrets.** A plan holds names and ids only. A task finds the coordination Redis in the environment
of its worker (``PORTOLAN_COORDINATION_URL``), and the process that plans the catalogue as well.
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
"""In the first offset of a query: the offset at which it began."""


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
    """Plans in one process for as long as the query lives, and reads in others."""

    def __init__(self, request: StreamRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._open: OpenStream | None = None
        self._initial: Offset | None = None
        self._at: Offset | None = None
        """The end of the last batch that was planned; None: none was."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        if self._initial is None:
            self._initial = self._opened.starting_at(self._request.starting_at)
        return self._initial

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return the end of the next batch; of a query that has begun, `partitions` knew one."""
        is_first = self._at is None
        start = self.initialOffset() if self._at is None else _plain(self._at)
        found = self._opened.latest(start, self._request.most)
        if is_first:
            return {**found, _INITIAL: start}
        # Spark compares all members: the first offset must stay as it is while nothing comes.
        return self._at if self._at is not None and found == start else found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # Spark calls it with the last offset that it knows when a query starts again.
        self._at = end
        if _INITIAL in end:
            self._initial = end[_INITIAL]
        if _plain(start) == _plain(end):
            return []
        return self._opened.ranges(_plain(start), _plain(end))

    def commit(self, end: Offset) -> None:
        self._opened.consumed(_plain(end))

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TuplesRange | ChangesRange)
        schema = to_arrow_schema(self._schema)
        batches = _read(partition, fail_on_loss=self._request.fail_on_loss)
        with asyncio.Runner() as runner:
            try:
                while (batch := runner.run(_following(batches))) is not None:
                    yield batch.cast(schema)
            finally:
                runner.run(batches.aclose())

    @property
    def _opened(self) -> OpenStream:
        # Spark starts several processes for a query, and only the one that plans needs all this.
        from spark_jobs.sources.stream_planning import OpenStream  # noqa: PLC0415

        if self._open is None:
            self._open = OpenStream(self._request)
        return self._open


async def _read(
    range_: TuplesRange | ChangesRange, *, fail_on_loss: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    from mediator.coordination.connecting import Coordination  # noqa: PLC0415 - only of tasks

    shared = Coordination(environment(COORDINATION))
    try:
        if isinstance(range_, TuplesRange):
            batches = tuples_in(shared.event_streams, range_, fail_on_loss=fail_on_loss)
        else:
            batches = changes_in(shared.feed, range_, fail_on_loss=fail_on_loss)
        async for batch in batches:
            yield batch
    finally:
        await shared.close()


async def _following(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


def _plain(offset: Offset) -> Offset:
    return {name: value for name, value in offset.items() if name != _INITIAL}
