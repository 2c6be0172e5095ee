"""Intake of new tuples from all streams and classes that a database's queries read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Self

from mediator.base.errors import NotFound
from mediator.changes.feed import PositionGone
from mediator.event_streams.port import StreamKey
from mediator.routing.model import DatabaseRoute
from mediator.standing.alignment import InputPage, aligned
from mediator.standing.class_intake import ClassIntake
from mediator.standing.context import HolderContext, OutOfDate
from mediator.standing.query import Source
from mediator.standing.results import LoggedTuple, Offset

__all__ = ["Intake", "Lost"]

_BATCH_TUPLES: Final = 500
"""Maximum tuples of each stream in a batch; and of classes, after which reading stops."""

_CONSUMER: Final = "standing-queries"


class Lost(Exception):
    """Tuples of these relations were removed before they were taken."""

    def __init__(self, relations: Iterable[str], detail: str) -> None:
        super().__init__(detail)
        self.relations = frozenset(relations)
        self.detail = detail


@dataclass(eq=False)
class Intake:
    """Reads streams and classes from where the log of batches ends."""

    _context: HolderContext
    _route: DatabaseRoute
    _classes: ClassIntake
    _class_relations: frozenset[str]
    _streams: Sequence[Source]

    @classmethod
    def of(
        cls,
        context: HolderContext,
        route: DatabaseRoute,
        sources: Iterable[Source],
        offsets: Mapping[str, Offset],
    ) -> Self:
        """Return an intake of sources from these offsets; classes are not read yet."""
        by_kind: dict[str, list[Source]] = {"class": [], "stream": []}
        for source in sorted(sources):
            by_kind[source.kind].append(source)
        relations = frozenset(source.relation for source in by_kind["class"])
        classes = ClassIntake(
            context.plane,
            context.subscriptions,
            route,
            frozenset(source.name for source in by_kind["class"]),
            {relation: offsets[relation].number for relation in relations},
        )
        return cls(context, route, classes, relations, by_kind["stream"])

    async def follow(self, feed: str, latest_s: float) -> None:
        """Follow the feed for classes from a position.

        Args:
            latest_s: The latest time of all tuples taken, in seconds since 1970.

        Raises:
            Lost: Changes after it are no longer kept.
        """
        try:
            await self._classes.open(feed, latest_s)
        except PositionGone:
            raise self._lost_changes() from None

    def close(self) -> None:
        self._classes.close()

    def restore(self, tuples: Iterable[LoggedTuple]) -> None:
        """Register logged tuples, so that the feed does not make them again."""
        self._classes.restore(tuples)

    @property
    def feed(self) -> str:
        """The position up to which the feed was taken; empty: it is not followed."""
        return self._classes.position

    async def read(self, offsets: Mapping[str, Offset], watermark_s: float) -> list[LoggedTuple]:
        """Read new tuples in the order of time, as a batch may end early.

        Args:
            offsets: The progress of each relation.
            watermark_s: Earlier tuples are late.

        Raises:
            Lost: Tuples or changes were removed before they were taken.
            OutOfDate: A stream is gone.
        """
        streams = [
            await self._read_stream(source, offsets[source.relation].number)
            for source in self._streams
        ]
        try:
            # After the streams: the read waits for changes that were in the feed when a tuple was
            # sent.
            classes = await self._classes.read(_BATCH_TUPLES)
        except PositionGone:
            raise self._lost_changes() from None
        return aligned([classes, *streams], watermark_s)

    def take(self, last: Mapping[str, int]) -> None:
        """Forget published tuples: up to a number, by relation."""
        self._classes.take(last)

    async def note_consumed(self, offsets: Mapping[str, Offset]) -> None:
        """Report to streams how far they were taken, so that they hold back their writers."""
        for source in self._streams:
            number = offsets[source.relation].number
            key = StreamKey(self._route.id, source.name)
            await self._context.streams.consumed(key, _CONSUMER, number)

    async def _read_stream(self, source: Source, after: int) -> InputPage:
        relation, key = source.relation, StreamKey(self._route.id, source.name)
        try:
            page, last = await self._context.streams.read(key, after, _BATCH_TUPLES)
        except NotFound:
            raise OutOfDate from None
        except PositionGone:
            detail = (
                f"The stream {source.name} has removed tuples that were not taken yet. Declare one"
                " that keeps more of them, or keeps them for longer."
            )
            raise Lost([relation], detail) from None
        tuples = [LoggedTuple(relation, item.time_s, item.values, item.number) for item in page]
        if not page or page[-1].number >= last:
            return InputPage(tuples, inf)
        # More is waiting: the byte limit may end a page before it is full.
        return InputPage(tuples, max(item.time_s for item in page))

    def _lost_changes(self) -> Lost:
        detail = "The change feed has lost changes that were not taken yet."
        return Lost(self._class_relations, detail)
