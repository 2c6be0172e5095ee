"""A database with streams, and Spark queries that read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from mediator.changes.feed import BEGINNING, PARTITIONS
from mediator.event_streams.port import EventStream, EventStreams, NewTuple, StreamKey
from spark_jobs.sources.streams import StreamData
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, unique

__all__ = ["FIELDS", "MAX_STARTS", "OTHER_CLASSES", "Killed", "Sink", "Streams"]

OTHER_CLASSES = {"others": {"fields": {"name": field_on("postgres")}}}
FIELDS = {"name": field_on("postgres"), "hits": field_on("redis", "integer", group="h")}
MAX_STARTS = 10


class Killed(Exception):
    """Ends a query after a batch is planned and before it is committed."""


@dataclass
class Sink:
    """The rows of each attempt at each batch of a query.

    Attributes:
        kill: The batch whose first attempt ends the query.
    """

    kill: int | None = None
    seen: dict[int, list[list[dict[str, Any]]]] = field(default_factory=dict)
    partitions: dict[int, int] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        self.seen.setdefault(batch, []).append(rows)
        self.partitions[batch] = frame.rdd.getNumPartitions()
        if batch == self.kill and len(self.seen[batch]) == 1:
            raise Killed

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of each batch's last attempt."""
        return [row for batch in sorted(self.seen) for row in self.seen[batch][-1]]


@dataclass
class Streams:
    """A database with event streams and a class with a change feed."""

    running: Service
    database: str
    spark: SparkSession
    checkpoint: Path

    @property
    def event_streams(self) -> EventStreams:
        streams = self.running.mediator.event_streams
        assert streams is not None
        return streams

    async def declare(self) -> StreamKey:
        id_ = self.running.mediator.data.model.databases[self.database].id
        key = StreamKey(id_, unique("prices"))
        stream = EventStream(key.stream, frozenset({"n"}), 3600.0, 100_000)
        assert await self.event_streams.declare(key, stream, 1_000)
        return key

    async def wait_for_relay(self, count: int) -> None:
        """Wait until the feed has `count` changes."""
        shared = self.running.mediator.coordination
        assert shared is not None
        id_ = self.running.mediator.data.model.databases[self.database].id

        async def are_relayed() -> bool:
            pages = [await shared.feed.events(id_, p, BEGINNING, 1_000) for p in range(PARTITIONS)]
            return sum(map(len, pages)) == count

        await eventually(are_relayed)

    async def append(self, key: StreamKey, *numbers: int) -> None:
        tuples = [NewTuple(number / 7, b'{"n":%d}' % number) for number in numbers]
        await self.event_streams.append(key, tuples)

    @contextmanager
    def query(self, sink: Callable[[DataFrame, int], None], **options: Any) -> Iterator[Any]:
        reader = self.spark.readStream.format(StreamData.name()).option("database", self.database)
        writer = reader.options(**options).load().writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    async def drain(self, sink: Sink, **options: Any) -> None:
        """Run a query until it has read everything available."""
        await asyncio.to_thread(self._drain, sink, options)

    async def read(self, **options: str) -> list[dict[str, Any]]:
        """Read a batch as Spark does, but in this process."""
        return await asyncio.to_thread(rows_of, {"database": self.database, **options})

    def _drain(self, sink: Sink, options: dict[str, Any]) -> None:
        for _ in range(MAX_STARTS):
            try:
                with self.query(sink, **options) as query:
                    query.processAllAvailable()
                    return
            except StreamingQueryException as error:
                # On a busy machine, a Python worker can take longer than Spark's ten seconds.
                if "failed to connect back" not in str(error):
                    raise
        pytest.fail("the machine is too busy to start a process in ten seconds")


def rows_of(options: dict[str, str]) -> list[dict[str, Any]]:
    source = StreamData(options)
    reader = source.streamReader(source.schema())
    try:
        end = reader.latestOffset()
        ranges = reader.partitions(reader.initialOffset(), end)
        batches: list[Any] = [batch for range_ in ranges for batch in reader.read(range_)]
    finally:
        reader.stop()
    return [row for batch in batches for row in batch.to_pylist()]
