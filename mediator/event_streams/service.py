"""Event streams of an installation: declared, appended to and read by applications."""

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

__all__ = ["MAX_STREAMS", "EventStreamService", "Page"]

MAX_STREAMS: Final = 1_000
"""Maximum event streams of a database."""

_MAX_CACHED: Final = 1_000


class Page(NamedTuple):
    """Tuples, and the number after which to continue."""

    tuples: list[StoredTuple]
    position: int


@dataclass(eq=False)
class EventStreamService:
    """Serves event streams that all replicas share."""

    _streams: EventStreams
    _clock: Clock
    _observe: Observer = ignore
    _declarations: dict[StreamKey, EventStream] = field(default_factory=dict, init=False)
    """Cached declarations, so that a batch costs one round trip; their ids detect changes."""

    async def declare(self, database: DatabaseRoute, stream: EventStream) -> None:
        """Store a stream.

        Raises:
            AlreadyExists: The name is taken.
            Conflict: The database has too many streams.
        """
        # Grants do not distinguish classes from streams.
        if stream.name in database.classes:
            raise AlreadyExists("A class of the database has this name.")
        key = StreamKey(database.id, stream.name)
        if not await self._streams.declare(key, stream, MAX_STREAMS):
            raise AlreadyExists("The database has an event stream of this name.")

    async def of_database(self, database: DatabaseRoute) -> list[EventStream]:
        """Return the streams of a database, ordered by name."""
        streams = await self._streams.of_database(database.id)
        return [streams[name] for name in sorted(streams)]

    async def report(self, key: StreamKey) -> dict[str, Any]:
        """Return a stream and its report as JSON; raises `NotFound`."""
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
        """Return the reports of streams by database id, for the databases that have streams."""
        ids = await self._streams.databases(databases)
        by_database = {id_: await self._reports(id_) for id_ in ids}
        return {id_: reports for id_, reports in by_database.items() if reports}

    async def _reports(self, database: str) -> list[StreamReport]:
        streams = await self._streams.of_database(database)
        keys = [StreamKey(database, name) for name in streams]
        reports = await asyncio.gather(*map(self._streams.report, keys), return_exceptions=True)
        for report in reports:
            # A stream may be dropped meanwhile.
            if isinstance(report, BaseException) and not isinstance(report, NotFound):
                raise report
        return [report for report in reports if isinstance(report, StreamReport)]

    async def drop(self, key: StreamKey) -> None:
        """Remove a stream with its tuples; raises `NotFound`."""
        self._declarations.pop(key, None)
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
            Conflict: The stream cannot keep so many tuples.
            IdempotencyReused: Another batch was appended under the id.
            Invalid: A tuple does not match the stream's declaration.
            NotFound: There is no such stream.
            TooManyRequests: It is full, or a consumer is too far behind.
        """
        try:
            appended = await self._append_cached(key, documents, retry)
        except TooManyRequests as error:
            self._observe(EventStreamRefused(database, key.stream, error.extra["limit"]))
            raise
        if appended.is_new:
            self._observe(EventStreamAppended(database, key.stream, len(documents)))
        return appended

    async def _append_cached(
        self, key: StreamKey, documents: Sequence[Any], retry: tuple[str, str] | None
    ) -> Appended:
        if (cached := self._declarations.get(key)) is not None:
            try:
                return await self._append(key, cached, documents, retry)
            except NotFound:  # the cached declaration is out of date
                self._declarations.pop(key, None)
        stream = await self._find(key)
        if len(self._declarations) >= _MAX_CACHED:
            self._declarations.clear()
        self._declarations[key] = stream
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
            PositionGone: The next tuple is no longer kept.
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
