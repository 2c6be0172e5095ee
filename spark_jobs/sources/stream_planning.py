"""Plans the reading of streams, in one process of a query: offsets, and ranges for tasks.

An event stream's offset is one number. A class's offset is the position of its database's feed,
whose partitions are read separately.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from pyspark.sql.datasource import InputPartition

from mediator.base.errors import Invalid, NotFound, Unavailable
from mediator.changes.feed import PARTITIONS, Feed
from mediator.changes.position import FeedPosition, order_of
from mediator.changes.subscriptions import Subscriptions
from mediator.event_streams.port import EventStreams, StreamKey, StreamReport
from mediator.options import MediatorOptions
from mediator.routing.model import DatabaseRoute
from mediator.service import Mediator
from mediator.stores.kinds import make_store
from spark_jobs.runner.port import InputUnfit
from spark_jobs.sources.classes import CATALOGUE
from spark_jobs.sources.stream_ranges import PAGE, ChangesRange, StreamLost, TuplesRange
from spark_jobs.sources.stream_request import COORDINATION, Offset, StreamRequest, environment

__all__ = ["OpenStream"]

MIN_PARTITION_TUPLES: Final = 1_000
"""The minimum number of tuples that justifies another partition."""

_NUMBER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_T = TypeVar("_T")


class OpenStream:
    """A mediator for the lifetime of a query, without periodic tasks or other users."""

    def __init__(self, request: StreamRequest) -> None:
        self._request = request
        self._runner = asyncio.Runner()
        options = MediatorOptions(environment(CATALOGUE), environment(COORDINATION))
        self._mediator = Mediator(options, make_store, [])
        self._run(self._mediator.open())

    def close(self) -> None:
        self._run(self._mediator.stop())
        self._runner.close()

    def starting_at(self, text: str) -> Offset:
        stream_side = self._stream_side()
        if text in ("earliest", "latest"):
            return self._run(stream_side.earliest() if text == "earliest" else stream_side.latest())
        return stream_side.parse(text)

    def latest(self, start: Offset, limit: int | None) -> Offset:
        """Return the end of the next batch; raise `BoundToAnother` if the streams are not ours."""
        self._run(self._mediator.renew_binding())
        with suppress(Unavailable):  # then with the previous names
            self._run(self._mediator.schemas.refresh())
        stream_side = self._stream_side()
        return self._run(
            stream_side.latest() if limit is None else stream_side.bounded(start, limit)
        )

    def ranges(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        parts, fail_on_loss = self._request.partitions, self._request.fail_on_loss
        return self._run(self._stream_side().ranges(start, end, parts, fail_on_loss=fail_on_loss))

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
        database = self._mediator.data.model.databases.get(self._request.database)
        if database is None:
            raise InputUnfit(f"There is no database {self._request.database}.")
        return database

    def _stream_side(self) -> _StreamSide:
        mediator, database, stream = self._mediator, self._database, self._request.stream
        if stream is not None:
            assert mediator.event_streams is not None
            return _TuplesOfStream(mediator.event_streams, StreamKey(database.id, stream))
        name = self._request.name
        route = database.classes.get(name)
        if route is None:
            raise InputUnfit(f"The database has no class {name}.")
        subscriptions, shared = mediator.changes.subscriptions, mediator.coordination
        assert subscriptions is not None
        assert shared is not None
        names = route.public_names if route.has_other_names else None
        return _ChangesOfClass(shared.feed, subscriptions, database.id, name, names)


class _StreamSide(Protocol):
    """The interface of both kinds of streams for the reader of a query."""

    async def earliest(self) -> Offset:
        """Return the offset before the oldest stored tuple or change."""

    async def latest(self) -> Offset:
        """Return the offset of the latest tuple or change."""

    def parse(self, text: str) -> Offset:
        """Parse a user's offset; raises `InputUnfit`."""

    async def bounded(self, start: Offset, limit: int) -> Offset:
        """Return the offset `limit` tuples or changes after `start`, or the latest offset.

        The latest offset can be earlier than `start` if tuples were lost since.
        """

    async def ranges(
        self, start: Offset, end: Offset, parts: int, *, fail_on_loss: bool
    ) -> Sequence[InputPartition]:
        """Divide the range between two offsets; raises `StreamLost`."""


class _TuplesOfStream:
    """Implements `_StreamSide` for an event stream."""

    def __init__(self, streams: EventStreams, key: StreamKey) -> None:
        self._streams = streams
        self._key = key

    async def earliest(self) -> Offset:
        return {"number": (await self._streams.report(self._key)).first - 1}

    async def latest(self) -> Offset:
        return {"number": (await self._streams.report(self._key)).last}

    def parse(self, text: str) -> Offset:
        if not _NUMBER.fullmatch(text):
            raise InputUnfit("startingAt must be earliest, latest or the number of a tuple.")
        return {"number": int(text)}

    async def bounded(self, start: Offset, limit: int) -> Offset:
        last = (await self.latest())["number"]
        # If the stream went back, this is before the start, which `ranges` detects.
        return {"number": min(last, start["number"] + limit)}

    async def ranges(
        self, start: Offset, end: Offset, parts: int, *, fail_on_loss: bool
    ) -> Sequence[InputPartition]:
        report = await self._streams.report(self._key)
        after, last = start["number"], end["number"]
        if fail_on_loss and (reason := _loss(after, last, report)):
            raise StreamLost(self._key.stream, reason)
        after, last = max(after, report.first - 1), min(last, report.last)
        size = max(MIN_PARTITION_TUPLES, -(-(last - after) // parts))
        cuts = range(after, last, size)
        return [TuplesRange(*self._key, cut, min(cut + size, last)) for cut in cuts]


def _loss(after: int, last: int, report: StreamReport) -> str | None:
    """Return what a stream has lost of the tuples after `after` and up to `last`, if anything."""
    if (current := min(last, report.last)) < after:
        return (
            f"the query goes on after tuple {after:,}, and the stream has got to {current:,} only."
        )
    if after < report.first - 1 or last > report.last:
        return (
            f"tuples from {after + 1:,} to {last:,} are due, and those from {report.first:,} to"
            f" {report.last:,} are kept."
        )
    return None


class _ChangesOfClass:
    """Implements `_StreamSide` for the changes of a class.

    Args:
        names: The name of each field by its stored name; None: names are equal.
    """

    def __init__(
        self,
        feed: Feed,
        subscriptions: Subscriptions,
        database: str,
        class_name: str,
        names: Mapping[str, str] | None,
    ) -> None:
        self._feed = feed
        self._subscriptions = subscriptions
        self._database = database
        self._class_name = class_name
        self._names = names

    async def earliest(self) -> Offset:
        return {"position": (await self._subscriptions.beginning(self._database)).text}

    async def latest(self) -> Offset:
        return {"position": (await self._subscriptions.now(self._database)).text}

    def parse(self, text: str) -> Offset:
        try:
            return {"position": FeedPosition.parse(text, "startingAt").text}
        except Invalid as error:
            detail = "startingAt must be earliest, latest or a position of the feed."
            raise InputUnfit(detail) from error

    async def bounded(self, start: Offset, limit: int) -> Offset:
        position = _position(start)
        if position.generation != await self._feed.generation(self._database):
            return await self.latest()
        for partition, id_ in enumerate(position.ids):
            oldest = await self._feed.oldest(self._database, partition)
            after = max(id_, oldest, key=order_of)
            last = await self._position_after(partition, after, max(1, limit // PARTITIONS))
            position = position.advanced(partition, last)
        return {"position": position.text}

    async def _position_after(self, partition: int, after: str, limit: int) -> str:
        """Return the stream id `limit` changes after another, or the last id."""
        while limit > 0:
            events = await self._feed.events(self._database, partition, after, min(limit, PAGE))
            if not events:
                break
            after, limit = events[-1].id, limit - len(events)
        return after

    async def ranges(
        self,
        start: Offset,
        end: Offset,
        parts: int,  # noqa: ARG002 - the feed has its own partitions
        *,
        fail_on_loss: bool,
    ) -> Sequence[InputPartition]:
        first, last = _position(start), _position(end)
        generation = await self._feed.generation(self._database)
        after = [*first.ids]
        for partition in range(PARTITIONS):
            oldest = await self._feed.oldest(self._database, partition)
            if first.generation != generation or order_of(after[partition]) < order_of(oldest):
                if fail_on_loss:
                    raise StreamLost(self._class_name, "changes that are due are not kept.")
                after[partition] = oldest
        if last.generation != generation:
            return []
        return [
            ChangesRange(self._database, self._class_name, self._names, partition, *ids)
            for partition, ids in enumerate(zip(after, last.ids, strict=True))
            if order_of(ids[0]) < order_of(ids[1])
        ]


def _position(offset: Offset) -> FeedPosition:
    return FeedPosition.parse(offset["position"], "offset")
