"""What is new of all streams and classes that the queries of a database read."""

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

_TAKEN: Final = 500
"""Tuples of each stream that a batch has at most; and of classes after which no more are read."""

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
        """Return an intake of sources, of which so much was taken; classes are not read yet."""
        by_kind: dict[str, list[Source]] = {"class": [], "stream": []}
        for each in sorted(sources):
            by_kind[each.kind].append(each)
        relations = frozenset(each.relation for each in by_kind["class"])
        classes = ClassIntake(
            context.plane,
            context.subscriptions,
            route,
            frozenset(each.name for each in by_kind["class"]),
            {each: offsets[each].number for each in relations},
        )
        return cls(context, route, classes, relations, by_kind["stream"])

    async def follow(self, feed: str, latest_s: float) -> None:
        """Follow the feed for classes from a position on.

        Args:
            latest_s: The latest time of all tuples that were taken, in seconds since 1970.

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
        """Note tuples that were logged, so that they are not made of the feed again."""
        self._classes.restore(tuples)

    @property
    def feed(self) -> str:
        """The position of the feed up to which all was taken; empty: it is not followed."""
        return self._classes.position

    async def read(self, offsets: Mapping[str, Offset], watermark_s: float) -> list[LoggedTuple]:
        """Read what is new, in the order of time, as a batch may end early.

        Args:
            offsets: How far each relation was taken.
            watermark_s: Tuples from before are late.

        Raises:
            Lost: Something was removed that was not taken yet.
            OutOfDate: A stream is gone.
        """
        streams = [
            await self._read_stream(each, offsets[each.relation].number) for each in self._streams
        ]
        try:
            # After the streams: what was in the feed when a tuple was sent is waited for.
            classes = await self._classes.read(_TAKEN)
        except PositionGone:
            raise self._lost_changes() from None
        return aligned([classes, *streams], watermark_s)

    def take(self, last: Mapping[str, int]) -> None:
        """Forget what is published now: up to a number, by relation."""
        self._classes.take(last)

    async def note_consumed(self, offsets: Mapping[str, Offset]) -> None:
        """Tell streams how far they were taken, which keeps them from running away."""
        for each in self._streams:
            number = offsets[each.relation].number
            key = StreamKey(self._route.id, each.name)
            await self._context.streams.consumed(key, _CONSUMER, number)

    async def _read_stream(self, source: Source, after: int) -> InputPage:
        relation, key = source.relation, StreamKey(self._route.id, source.name)
        try:
            page, last = await self._context.streams.read(key, after, _TAKEN)
        except NotFound:
            raise OutOfDate from None
        except PositionGone:
            detail = (
                f"The stream {source.name} has removed tuples that were not taken yet. Declare one"
                " that keeps more of them, or keeps them for longer."
            )
            raise Lost([relation], detail) from None
        tuples = [LoggedTuple(relation, each.time_s, each.values, each.number) for each in page]
        if not page or page[-1].number >= last:
            return InputPage(tuples, inf)
        # More is waiting: a page may end before it is full, by its bytes.
        return InputPage(tuples, max(each.time_s for each in page))

    def _lost_changes(self) -> Lost:
        detail = "The change feed has lost changes that were not taken yet."
        return Lost(self._class_relations, detail)
