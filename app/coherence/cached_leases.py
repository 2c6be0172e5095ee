"""Marks that linger: what nobody caches is written again without a word to the sketch.

Where `begin` finds that no cache can hold a key, the mark of the write stays after it was
acknowledged, and further writes of the key by this replica are done under it, with its token. While
it stands nothing of the key becomes cacheable, so that there is no copy which a write could make
stale: to the sketch all of them are one write that takes long (docs/coherence.md, Marks that
linger). A mark is ended a moment after its last write, or once it is old, or as soon as somebody
wants to read its key, through whichever replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mediator.base.clock import Clock
from mediator.base.periodic_tasks import PeriodicTask
from sketch.protocol.port import EndResult, Partition, ServerSketch, SketchUnavailable

__all__ = ["Lingering"]

_IDLE_S: Final = 2.0
"""A mark that was not used for so long is ended; sooner, where there are many."""

_USED_S: Final = 6.0
_USED_SHARE: Final = 0.2
"""A mark takes writes for so long, or this share of a write's lease, if that is less.

What is left of the lease must be enough for the last of them to reach its store: if the sketch is
lost, nothing is cacheable for the length of a lease from then on, and the mark began before it. (As
long as the sketch is there fences would do.) So the share is small, and the settings say how much
is left for the systems. Longer marks would save little, as few writes ask the sketch by now; and a
reader of whom this replica does not hear waits for their end."""

_OLD_SHARE: Final = 0.8
"""A mark is ended at this share of that time, as a round may be late."""

_ROUND_S: Final = 0.25
_AT_ONCE: Final = 100
"""Marks that are ended without letting requests have their turn."""

_MOST: Final = 2_000
"""Marks at a time. After a crash they are orphans, which recovery settles one after the other."""

_AVOIDED_S: Final = 10.0
_MOST_AVOIDED: Final = 10_000

_log = logging.getLogger("portolan.coherence")


@dataclass(slots=True)
class _Mark:
    """A pending write that stays; times are the monotonic clock's.

    Attributes:
        partition: The class.
        key: Its key.
        token: Of the write that began it; further ones use it, too.
        route: How the class was laid out then.
        begun_s: Before the sketch was asked.
        used_s: When a write began or ended under it.
        writes: How many are under way, or came to nothing that is known.
        open: Whether it takes further writes.
    """

    partition: Partition
    key: str
    token: str
    route: object
    begun_s: float
    used_s: float
    writes: int = 1
    open: bool = True


class Lingering:
    """The marks of this replica that linger.

    Args:
        sketch: The server's sketch.
        clock: The time.
    """

    def __init__(self, sketch: ServerSketch, clock: Clock) -> None:
        self._sketch = sketch
        self._clock = clock
        self._used_s = min(_USED_S, _USED_SHARE * sketch.limits.lease_s)
        self._marks: dict[str, _Mark] = {}
        self._open: dict[Partition, dict[str, _Mark]] = {}
        self._avoided: dict[tuple[Partition, str], float] = {}
        self._started = False

    def start(self) -> PeriodicTask:
        """Let marks linger from now on; return what ends them in time."""
        self._started = True
        return PeriodicTask("ending marks that linger", _ROUND_S, self.end_some)

    async def stop(self) -> None:
        """Let no mark linger any more, and end those that stand."""
        self._started = False
        await self._end_all(list(self._marks.values()))

    def join(self, partition: Partition, key: str, route: object) -> str | None:
        """Return the token under which a key may be written; None: the sketch must be asked.

        Each write that joins must `leave`, unless it is not known what became of it.
        """
        mark = self._open.get(partition, {}).get(key)
        if mark is None:
            return None
        now_s = self._clock.monotonic()
        if mark.route is not route or now_s - mark.begun_s >= self._used_s:
            self._shut(mark)
            return None
        mark.writes += 1
        mark.used_s = now_s
        return mark.token

    def keep(
        self, partition: Partition, key: str, token: str, route: object, asked_s: float
    ) -> None:
        """Let the mark of a write linger that has begun, if that is worth it.

        Args:
            partition: The class.
            key: What is written.
            token: Of the write.
            route: How the class was laid out before the sketch was asked.
            asked_s: When that was, by the monotonic clock.
        """
        now_s, known = self._clock.monotonic(), self._open.setdefault(partition, {})
        if not self._started or len(self._marks) >= _MOST or key in known:
            return
        if now_s < self._avoided.get((partition, key), now_s) or now_s - asked_s >= self._used_s:
            return
        self._marks[token] = known[key] = _Mark(partition, key, token, route, asked_s, now_s)

    async def leave(self, token: str) -> bool:
        """Note that a write has been done; False: its mark does not linger, and has to be ended."""
        mark = self._marks.get(token)
        if mark is None:
            return False
        mark.writes -= 1
        mark.used_s = self._clock.monotonic()
        if not mark.writes and not mark.open:
            await self._end([mark])
        return True

    async def listen(self) -> None:
        """Give way to what is read through other replicas, until cancelled."""
        await self._sketch.listen(self._wanted)

    async def _wanted(self, partition: Partition, key: str) -> None:
        """Give way to a read that the sketch has refused, for whoever's mark that was.

        A mark that was made a moment ago may not be known here yet, and must not be kept then.
        """
        if key:
            self.avoid(partition, key)
            await self.give_way(partition, [key])
        else:
            await self.give_way_to_results(partition)

    async def give_way(self, partition: Partition, keys: Sequence[str]) -> None:
        """End the marks of keys that are about to be read; those in use end with their writes."""
        known = self._open.get(partition, {})
        if found := [mark for key in keys if (mark := known.get(key)) is not None]:
            for mark in found:
                self.avoid(partition, mark.key)
            await self._end_all(found)

    async def give_way_to_results(self, partition: Partition) -> None:
        """End the marks of a class of which a result is about to be read."""
        if found := list(self._open.get(partition, {}).values()):
            await self._end_all(found)

    def avoid(self, partition: Partition, key: str) -> None:
        """Let no mark of a key linger for a while: somebody reads it."""
        place = (partition, key)
        self._avoided.pop(place, None)
        self._avoided[place] = self._clock.monotonic() + _AVOIDED_S
        if len(self._avoided) > _MOST_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    async def end_some(self) -> None:
        """End marks that were not used for a while, or are old.

        What is not known to have been done is left to recovery, once its lease is over.
        """
        now_s, idle_s = self._clock.monotonic(), self._idle_s()
        for mark in list(self._marks.values()):
            if now_s - mark.begun_s >= self._sketch.limits.lease_s:
                self._shut(mark)
                del self._marks[mark.token]
            elif self._is_due(mark, now_s, idle_s):
                self._shut(mark)
        await self._end([m for m in self._marks.values() if not m.open and not m.writes])

    def _idle_s(self) -> float:
        """Return how long an idle mark may stay: what is written once must not fill all places."""
        return _IDLE_S * min(1.0, 2 * (1 - len(self._marks) / _MOST))

    def _is_due(self, mark: _Mark, now_s: float, idle_s: float) -> bool:
        idle = not mark.writes and now_s - mark.used_s >= idle_s
        return idle or now_s - mark.begun_s >= _OLD_SHARE * self._used_s

    def _shut(self, mark: _Mark) -> None:
        """Take no further writes under a mark."""
        if mark.open:
            mark.open = False
            del self._open[mark.partition][mark.key]

    async def _end_all(self, marks: Sequence[_Mark]) -> None:
        """End marks, those in use when their last writes are done."""
        for mark in marks:
            self._shut(mark)
        await self._end([mark for mark in marks if not mark.writes])

    async def _end(self, marks: Sequence[_Mark]) -> None:
        """End marks; the sketch keeps those that fail, and they are tried again."""
        left = iter(marks)
        while some := list(islice(left, _AT_ONCE)):
            try:
                await asyncio.gather(*map(self._end_one, some))
            except SketchUnavailable as error:
                _log.debug("marks were not ended: %s", error)
                return

    async def _end_one(self, mark: _Mark) -> None:
        """End a mark. It tells no version: its writes need not have ended in their order.

        Nor does it say which queries it knows: none can have been registered since it was begun.
        """
        ended = await self._sketch.end(mark.partition, mark.token, {})
        self._marks.pop(mark.token, None)
        if ended is EndResult.CONTENDED:
            self.avoid(mark.partition, mark.key)
