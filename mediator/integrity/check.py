"""The integrity check: finds writes that bypassed Portolan, in a database that is in use.

The changes in the feed become histories (`histories`), with which their objects are compared. Then
all objects are scanned for those without changes.

A pending write also makes a difference: its version exists before the feed has it. So mismatches
are read again once the feed has every change acknowledged by then. If there is no new change, no
write came between, and the object must agree with its history. Otherwise it is compared again; an
object that is written continuously is given up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from mediator.base.clock import Clock
from mediator.base.concurrency import result_or_raise
from mediator.base.errors import Conflict, MediatorError, NotFound, Unavailable
from mediator.changes.feed import PARTITIONS, Feed, PositionGone, partition_of
from mediator.data_plane.port import DataPlane, pages
from mediator.integrity.histories import GroupHistory, Mismatch, MismatchKind, compare
from mediator.integrity.key_bitmap import KeyBitmap
from mediator.model.change import Change
from mediator.model.operations import Get, Outcome
from mediator.routing.model import DatabaseRoute

__all__ = ["Integrity", "IntegrityReport"]

_BATCH: Final = 1_000
_READ_BATCH: Final = 100
_EXAMPLES: Final = 100
_FEED_TIMEOUT_S: Final = 15.0
_PAUSE_S: Final = 0.1
_ATTEMPTS: Final = 5

_Key: TypeAlias = tuple[str, str]
"""Class and id."""


@dataclass(slots=True)
class IntegrityReport:
    """How many cache groups differ from their histories (`counts`), and some of them.

    `older` objects have no changes in the feed; `left_out` objects exceed the limit of the
    comparison: an estimate if there are many.
    """

    compared: int = 0
    older: int = 0
    left_out: int = 0
    counts: Counter[MismatchKind] = field(default_factory=Counter)
    examples: list[Mismatch] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        documents = map(asdict, self.examples)
        return {
            "compared": self.compared,
            "older": self.older,
            "left_out": self.left_out,
            "wrong": dict(sorted(self.counts.items())),
            "examples": [
                {"class": document.pop("class_name"), **document} for document in documents
            ],
        }


@dataclass(frozen=True)
class Integrity:
    _plane: DataPlane
    _feed: Feed | None
    _clock: Clock

    async def check(self, database: str, max_objects: int) -> IntegrityReport:
        """Check up to `max_objects` objects of a database.

        Raises:
            NotFound: There is no such database.
            Conflict: There is no feed, or it is too far behind.
            Unavailable: A system or the feed does not answer.
        """
        if self._feed is None:
            raise Conflict("There is no change feed: set PORTOLAN_COORDINATION_URL.")
        route = self._plane.model.databases.get(database)
        if route is None:
            raise NotFound(f"There is no database {database}.")
        return await _Check(
            self._plane, self._feed, self._clock, database, route, max_objects
        ).run()


@dataclass(eq=False)
class _Check:
    _plane: DataPlane
    _feed: Feed
    _clock: Clock
    _database: str
    _route: DatabaseRoute
    _max_objects: int
    _histories: dict[_Key, dict[str, GroupHistory]] = field(default_factory=dict)
    _positions: dict[int, str] = field(default_factory=dict)
    _since: dict[int, int] = field(default_factory=dict)
    _ignored: KeyBitmap = field(default_factory=KeyBitmap)
    _report: IntegrityReport = field(default_factory=IntegrityReport)

    async def run(self) -> IntegrityReport:
        await self._wait_for_feed()  # it must have all changes acknowledged before
        await self._follow()
        self._report.compared = len(self._histories)
        suspected = [m for keys in _chunks([*self._histories]) for m in await self._compare(keys)]
        suspected += await self._scan()
        if suspected:
            keys = [*dict.fromkeys((m.class_name, m.id) for m in suspected)]
            confirmed = await self._confirm(keys)
            self._report.counts.update(m.wrong for m in confirmed)
            self._report.examples = confirmed[:_EXAMPLES]
        self._report.left_out = len(self._ignored)
        return self._report

    async def _follow(self) -> None:
        """Add the changes since the last time."""
        for partition in range(PARTITIONS):
            try:
                await self._read(partition)
            except PositionGone:  # it was trimmed meanwhile: only remaining changes count
                self._positions.pop(partition)
                await self._read(partition)

    async def _read(self, partition: int) -> None:
        if partition not in self._positions:
            self._positions[partition] = await self._feed.oldest(self._route.id, partition)
        while True:
            after = self._positions[partition]
            changes = await self._feed.read(self._route.id, partition, after, _BATCH)
            for id_, change in changes:
                self._since.setdefault(partition, change.version)
                self._add(change)
                self._positions[partition] = id_
            if len(changes) < _BATCH:
                return

    def _add(self, change: Change) -> None:
        key = (change.class_name, change.object_id)
        route = self._route.classes.get(change.class_name)
        if route is None or change.version < route.made_us:
            return  # the class was dropped since, and perhaps created again
        if key not in self._histories and len(self._histories) >= self._max_objects:
            self._ignored.add(key)
            return
        self._histories.setdefault(key, {}).setdefault(change.group, GroupHistory()).add(change)

    async def _compare(self, keys: Sequence[_Key]) -> list[Mismatch]:
        pairs = zip(keys, await self._read_all(keys), strict=True)
        return [m for key, outcome in pairs for m in self._mismatches(*key, outcome)]

    def _mismatches(self, class_name: str, id_: str, outcome: Outcome | None) -> list[Mismatch]:
        route = self._route.classes[class_name]
        if outcome is None and route.schema.ttl_s is not None:
            return []  # it may have expired, without a change so far
        present = (outcome, route.codec.encode(outcome.values or {})) if outcome else None
        histories = self._histories.get((class_name, id_), {})
        mismatches = (
            compare(class_name, id_, group, histories[group[0]], present)
            for group in route.groups.items()
            if group[0] in histories
        )
        return [mismatch for mismatch in mismatches if mismatch is not None]

    async def _scan(self) -> list[Mismatch]:
        """Find objects whose changes should be in the feed."""
        mismatches: list[Mismatch] = []
        for name in self._route.classes:
            count = 0
            async for page in pages(self._plane, self._database, name):
                mismatches += [m for outcome in page for m in self._unrecorded(name, outcome)]
                count += len(page)
                keys = [(name, outcome.id) for outcome in page]
                recorded = [key in self._histories or key in self._ignored for key in keys]
                self._report.older += recorded.count(False)
                if count >= self._max_objects:
                    break
        return mismatches

    def _unrecorded(self, name: str, outcome: Outcome) -> list[Mismatch]:
        key = (name, outcome.id)
        since = self._since.get(partition_of(name, outcome.id))
        if since is None or key in self._ignored:
            return []
        since = max(since, self._route.classes[name].made_us)
        histories = self._histories.get(key, {})
        return [
            Mismatch(name, outcome.id, group, "unrecorded")
            for group, version in outcome.versions.items()
            # The change of an older version may have been trimmed from the feed.
            if group not in histories and (version or 0) > since
        ]

    async def _confirm(self, keys: Sequence[_Key]) -> list[Mismatch]:
        mismatches: list[Mismatch] = []
        for _ in range(_ATTEMPTS):
            former_versions = [self._versions(key) for key in keys]
            outcomes = await self._read_all(keys)
            await self._wait_for_feed()
            await self._follow()
            changed_keys: list[_Key] = []
            for key, versions, outcome in zip(keys, former_versions, outcomes, strict=True):
                # It was written between the two reads of its history, so the mismatch proves
                # nothing: compare again.
                if self._versions(key) != versions:
                    changed_keys.append(key)
                    continue
                mismatches += self._mismatches(*key, outcome)
                mismatches += self._unrecorded(key[0], outcome) if outcome else []
            keys = changed_keys
            if not keys:
                break
        return mismatches

    def _versions(self, key: _Key) -> dict[str, int]:
        return {group: history.version for group, history in self._histories.get(key, {}).items()}

    async def _read_all(self, keys: Sequence[_Key]) -> list[Outcome | None]:
        replies: list[Outcome | MediatorError] = []
        for chunk in _chunks(keys):
            replies += await self._plane.batch([Get(self._database, *key) for key in chunk])
        return [
            None if isinstance(reply, NotFound) else result_or_raise(reply) for reply in replies
        ]

    async def _wait_for_feed(self) -> None:
        """Wait until the feed has all changes acknowledged by now."""
        tick = await self._feed.tick()
        until = self._clock.monotonic() + _FEED_TIMEOUT_S
        while behind := await self._behind(tick):
            if self._clock.monotonic() > until:
                detail = f"The feed is too far behind {', '.join(behind)} to compare with."
                raise Unavailable(detail, system=behind[0])
            await asyncio.sleep(_PAUSE_S)

    async def _behind(self, tick: int) -> list[str]:
        """Return the systems whose changes before a tick the feed lacks."""
        relayed = await self._feed.relayed_until(self._route.id)
        routes = self._route.classes.values()
        systems = {fragment.system for route in routes for fragment in route.fragments}
        return sorted(name for name in systems if relayed.get(name, 0) < tick)


def _chunks(keys: Sequence[_Key]) -> list[Sequence[_Key]]:
    return [keys[start : start + _READ_BATCH] for start in range(0, len(keys), _READ_BATCH)]
