"""Event streams of an installation: declared, appended to by applications, read by them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mediator.base.clock import Clock
from mediator.base.errors import AlreadyExists, Conflict, NotFound, TooManyRequests
from mediator.base.observation import EventStreamAppended, EventStreamRefused, Observer, ignore
from mediator.event_streams.batch import read_tuples
from mediator.event_streams.declaration import stream_document
from mediator.event_streams.port import (
    Appended,
    EventStream,
    EventStreams,
    StoredTuple,
    StreamKey,
    StreamReport,
)
from mediator.routing.model import DatabaseRoute

__all__ = ["MOST_STREAMS", "EventStreamService", "Page"]

MOST_STREAMS: Final = 1_000
"""Event streams of a database."""

_MOST_KNOWN: Final = 1_000


class Page(NamedTuple):
    """Tuples, and the number after which others follow."""

    tuples: list[StoredTuple]
    position: int


@dataclass(eq=False)
class EventStreamService:
    """Serves event streams that all replicas share."""

    _streams: EventStreams
    _clock: Clock
    _observe: Observer = ignore
    _known: dict[StreamKey, EventStream] = field(default_factory=dict, init=False)
    """Declarations, so that a batch costs one round trip; their ids say whether they still hold."""

    async def declare(self, database: DatabaseRoute, stream: EventStream) -> None:
        """Write a stream down.

        Raises:
            AlreadyExists: The name is taken.
            Conflict: The database has too many streams.
        """
        # A grant names a class and a stream alike.
        if stream.name in database.classes:
            raise AlreadyExists("A class of the database has this name.")
        key = StreamKey(database.id, stream.name)
        if not await self._streams.declare(key, stream, MOST_STREAMS):
            raise AlreadyExists("The database has an event stream of this name.")

    async def of_database(self, database: DatabaseRoute) -> list[EventStream]:
        """Return the streams of a database in the order of their names."""
        found = await self._streams.of_database(database.id)
        return [found[name] for name in sorted(found)]

    async def report(self, key: StreamKey) -> dict[str, Any]:
        """Return a stream, and what there is of it, as JSON; raises `NotFound`."""
        stream, report = await self._find(key), await self._streams.report(key)
        consumers = [
            {"name": name, "number": number, "behind": max(0, report.last - number)}
            for name, number in sorted(report.consumers.items())
        ]
        return {
            **stream_document(stream),
            "first": report.first,
            "last": report.last,
            "tuples": report.last - report.first + 1,
            "bytes": report.size,
            "rate": report.rate,
            "consumers": consumers,
        }

    async def reports(self, databases: Collection[str]) -> dict[str, list[StreamReport]]:
        """Return what there is of the streams of those of some databases that have any, by id."""
        having = await self._streams.databases(databases)
        found = {each: await self._reports(each) for each in having}
        return {each: reports for each, reports in found.items() if reports}

    async def _reports(self, database: str) -> list[StreamReport]:
        found = await self._streams.of_database(database)
        keys = [StreamKey(database, name) for name in found]
        reports = await asyncio.gather(*map(self._streams.report, keys), return_exceptions=True)
        for each in reports:
            # One may be dropped meanwhile.
            if isinstance(each, BaseException) and not isinstance(each, NotFound):
                raise each
        return [each for each in reports if isinstance(each, StreamReport)]

    async def drop(self, key: StreamKey) -> None:
        """Remove a stream with its tuples; raises `NotFound`."""
        self._known.pop(key, None)
        if not await self._streams.drop(key):
            raise _not_found()

    async def append(
        self,
        database: str,
        key: StreamKey,
        documents: Sequence[Any],
        retry: tuple[str, str] | None,
    ) -> Appended:
        """Append tuples, given as JSON, all or none.

        Args:
            database: Its name, for observers.
            retry: The id of the batch and its fingerprint: it is appended only once.

        Raises:
            Conflict: The stream never keeps so many.
            IdempotencyReused: Another batch was appended under the id.
            Invalid: A tuple is not one of the stream.
            NotFound: There is no such stream.
            TooManyRequests: It is full, or a consumer is too far behind.
        """
        try:
            appended = await self._append_known(key, documents, retry)
        except TooManyRequests as error:
            self._observe(EventStreamRefused(database, key.stream, error.extra["limit"]))
            raise
        if appended.is_new:
            self._observe(EventStreamAppended(database, key.stream, len(documents)))
        return appended

    async def _append_known(
        self, key: StreamKey, documents: Sequence[Any], retry: tuple[str, str] | None
    ) -> Appended:
        if (known := self._known.get(key)) is not None:
            try:
                return await self._append(key, known, documents, retry)
            except NotFound:  # as it was declared then
                self._known.pop(key, None)
        stream = await self._find(key)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = stream
        return await self._append(key, stream, documents, retry)

    async def _append(
        self,
        key: StreamKey,
        stream: EventStream,
        documents: Sequence[Any],
        retry: tuple[str, str] | None,
    ) -> Appended:
        tuples = await read_tuples(stream, documents, self._clock.now())
        if len(tuples) > stream.most_tuples:
            raise Conflict(f"The stream keeps {stream.most_tuples:,} tuples at most.")
        if retry is None:
            return Appended(await self._streams.append(key, tuples, stream), is_new=True)
        return await self._streams.append_once(key, tuples, *retry, stream)

    async def read(
        self, key: StreamKey, after: int | None, limit: int, wait_s: float = 0.0
    ) -> Page:
        """Return tuples after a number, waiting for the first; None: from the oldest on.

        Raises:
            NotFound: There is no such stream.
            PositionGone: The next tuple is not kept any more.
        """
        tuples, last = await self._streams.read(key, after, limit, wait_s)
        if tuples:
            return Page(tuples, tuples[-1].number)
        return Page([], last if after is None else after)

    async def _find(self, key: StreamKey) -> EventStream:
        stream = await self._streams.find(key)
        if stream is None:
            raise _not_found()
        return stream


def _not_found() -> NotFound:
    return NotFound("There is no such event stream.")
