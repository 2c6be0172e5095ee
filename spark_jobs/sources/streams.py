"""Streams as inputs of Structured Streaming: a Python Data Source, in partitions, by exact offsets.

**Offsets.** A batch is what is between two offsets, and reading it again yields the same rows for
as long as they are kept. The first offset of a query also names where the query began: if it ends
before its first batch is committed, `latest` is another offset by the time it starts again.

**Secrets.** A plan holds names and ids only. A task finds the coordination Redis in the environment
of its worker (``PORTOLAN_COORDINATION_URL``), and the process that plans the catalogue as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from mediator.base.errors import NotFound, Unavailable
from mediator.coordination.connecting import Coordination
from mediator.event_streams.port import StreamKey
from mediator.routing.model import DatabaseRoute
from mediator.service import Mediator, MediatorOptions
from mediator.stores.kinds import make_store
from spark_jobs.runner.port import InputUnfit
from spark_jobs.sources.classes import CATALOGUE
from spark_jobs.sources.stream_ranges import (
    CHANGES,
    TUPLES,
    ChangesOfClass,
    ChangesRange,
    Offset,
    StreamSide,
    TuplesOfStream,
    TuplesRange,
    changes_in,
    tuples_in,
)

__all__ = ["COORDINATION", "StreamData"]

COORDINATION: Final = "PORTOLAN_COORDINATION_URL"
"""The environment variable that holds the coordination Redis's address for a task."""

_INITIAL: Final = "initial"
"""In the first offset of a query: the offset at which it began."""

_T = TypeVar("_T")


class StreamRequest(BaseModel):
    """The options of the data source."""

    database: str
    stream: str | None = None
    class_name: str | None = Field(None, alias="class")
    partitions: int = Field(4, ge=1, le=10_000)
    most: int | None = Field(None, alias="maxpertrigger", ge=1)
    starting_at: str = Field("earliest", alias="startingat")
    fail_on_loss: bool = Field(default=True, alias="failonloss")
    consumer: str | None = Field(None, min_length=1, max_length=100)

    @classmethod
    def of(cls, options: dict[str, str]) -> StreamRequest:
        """Read options, whose names are in lower case; raises `InputUnfit`."""
        try:
            request = cls.model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputUnfit(f"The option {first['loc'][0]}: {first['msg']}.") from error
        if (request.stream is None) is (request.class_name is None):
            raise InputUnfit("One of the options stream and class is required.")
        return request

    @property
    def name(self) -> str:
        return self.stream or self.class_name or ""


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
        self._open: _OpenStream | None = None
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
    def _opened(self) -> _OpenStream:
        if self._open is None:
            self._open = _OpenStream(self._request)
        return self._open


class _OpenStream:
    """A mediator for as long as a query lives; it has no periodic tasks, and no other user."""

    def __init__(self, request: StreamRequest) -> None:
        self._request = request
        self._runner = asyncio.Runner()
        options = MediatorOptions(_environment(CATALOGUE), _environment(COORDINATION))
        self._mediator = Mediator(options, make_store, [])
        self._run(self._mediator.open())

    def close(self) -> None:
        self._run(self._mediator.stop())
        self._runner.close()

    def starting_at(self, text: str) -> Offset:
        side = self._side()
        if text in ("earliest", "latest"):
            return self._run(side.earliest() if text == "earliest" else side.latest())
        return side.parse(text)

    def latest(self, start: Offset, most: int | None) -> Offset:
        with suppress(Unavailable):  # then with the names of before
            self._run(self._mediator.schemas.refresh())
        side = self._side()
        return self._run(side.latest() if most is None else side.bounded(start, most))

    def ranges(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        parts, fail_on_loss = self._request.partitions, self._request.fail_on_loss
        return self._run(self._side().ranges(start, end, parts, fail_on_loss=fail_on_loss))

    def consumed(self, end: Offset) -> None:
        consumer, streams = self._request.consumer, self._mediator.event_streams
        if consumer is not None and streams is not None and self._request.stream is not None:
            key = StreamKey(self._database.id, self._request.stream)
            self._run(streams.consumed(key, consumer, end["number"]))

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(call)
        except NotFound as error:
            raise InputUnfit(f"{self._request.name}: {error.detail}") from error

    @property
    def _database(self) -> DatabaseRoute:
        found = self._mediator.data.model.databases.get(self._request.database)
        if found is None:
            raise InputUnfit(f"There is no database {self._request.database}.")
        return found

    def _side(self) -> StreamSide:
        mediator, database, stream = self._mediator, self._database, self._request.stream
        if stream is not None:
            assert mediator.event_streams is not None
            return TuplesOfStream(mediator.event_streams, StreamKey(database.id, stream))
        name = self._request.name
        route = database.classes.get(name)
        if route is None:
            raise InputUnfit(f"The database has no class {name}.")
        subscriptions, shared = mediator.changes.subscriptions, mediator.coordination
        assert subscriptions is not None
        assert shared is not None
        names = route.public_names if route.has_other_names else None
        return ChangesOfClass(shared.feed, subscriptions, database.id, name, names)


async def _read(
    range_: TuplesRange | ChangesRange, *, fail_on_loss: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    shared = Coordination(_environment(COORDINATION))
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


def _environment(name: str) -> str:
    if name not in os.environ:
        raise InputUnfit(f"{name} is not in the environment of Spark's Python processes.")
    return os.environ[name]
