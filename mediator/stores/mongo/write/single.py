"""A single write: first tried in one round trip, else by reading and deciding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pymongo.errors import DuplicateKeyError, OperationFailure

from mediator.base.clock import Clock
from mediator.base.offload import is_large, offload
from mediator.stores.mongo import sizes
from mediator.stores.mongo.claims import holders
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, layout_of
from mediator.stores.mongo.outbox.archive import OPERATIONS, add_archived, make_room
from mediator.stores.mongo.outbox.entries import FULL
from mediator.stores.mongo.session import MongoSession
from mediator.stores.mongo.write.attempt import UpdateAttempt, attempt_of
from mediator.stores.mongo.write.decision import Decision, decide
from mediator.stores.port import (
    SizedWrite,
    Status,
    StoreBusy,
    StoreUnavailable,
    Write,
    WriteKind,
    WriteResult,
)

__all__ = ["DECISION_PROJECTION", "SingleWriter", "exceeding", "measure"]

_ATTEMPTS: Final = 64
_FIRST_PAUSE_S: Final = 0.0005
_MAX_PAUSE_S: Final = 0.05

_ATTEMPTS_ON_FULL: Final = 20
"""Attempts, within about a second, before a write gives up on a full outbox."""

_ATTEMPTS_ON_LARGE: Final = 2
"""The same where a record is too large: it is read every time."""

DECISION_PROJECTION: Final[Document] = (
    BOOKKEEPING
    | OPERATIONS
    | {
        "values": 1,
        "_acknowledged": 1,
        "_bytes": 1,
        "_fences": 1,
        "_intent": 1,
    }
)
"""The projection of a record for deciding a write."""

_ID: Final[Document] = {"_id": 1}

_MAX_AHEAD_US: Final = 1_000_000
"""How far ahead of our clock another clock is followed."""

_BSON_PER_JSON: Final = 9
"""A digit and a comma in a list become an integer and its index in BSON: the largest growth."""

_GUARD_ERRORS: Final = frozenset({2, 14, 28})
"""BadValue, TypeMismatch, PathNotViable: a modifier failed on a value that its guard admitted."""


class SingleWriter:
    """Applies one write at a time."""

    def __init__(self, session: MongoSession, clock: Clock) -> None:
        self._session = session
        self._stamps = _Stamps(clock)

    async def write(self, layout: Layout, write: Write, token: str) -> WriteResult:
        result = await self._attempt(layout, write, token)
        return result or await self.read_and_write(layout, write, token)

    async def _attempt(self, layout: Layout, write: Write, token: str) -> WriteResult | None:
        """Try a write in one round trip; None if it did not apply."""
        if write.kind is WriteKind.CREATE and not (write.expect or write.intent):
            # An insertion fails on the key of an existing record or tombstone.
            decision = await self.decide(layout, write, None, token)
            return await self._apply(layout, decision)
        attempt = await self.attempt(layout, write, token)
        if attempt is None:
            return None
        try:
            applied, document = await self._session.modify(layout, attempt)
        except DuplicateKeyError:
            return None
        except OperationFailure as error:
            if error.code in _GUARD_ERRORS:
                return None
            raise
        return attempt.result_of(document) if applied else None

    async def attempt(self, layout: Layout, write: Write, token: str) -> UpdateAttempt | None:
        """Translate a write; None if its record must be read first; see `attempt_of`."""
        stamp = self._stamps.next()
        return await offload(is_large(write.values), attempt_of, layout, write, stamp, token)

    async def read_and_write(self, layout: Layout, write: Write, token: str) -> WriteResult:
        """Read the record, decide, and write if it is unchanged, else retry."""
        for attempt_number in range(_ATTEMPTS):
            document = await self.read(layout, write)
            decision = await self.decide(layout, write, document, token)
            result = await self._apply(layout, decision)
            if result is not None:
                return result
            if await self._make_room(layout, write, bytes_=decision is None):
                continue
            if taken := await holders(self._session, layout, [write]):
                return WriteResult(Status.TAKEN, taken=taken[write.id])
            is_large = decision is None and attempt_number >= _ATTEMPTS_ON_LARGE
            if is_large or (
                attempt_number >= _ATTEMPTS_ON_FULL and await self._is_full(layout, write)
            ):
                raise StoreBusy("this record takes no more writes until its changes are relayed")
            pause_s = _MAX_PAUSE_S if decision is None else _FIRST_PAUSE_S * 2**attempt_number
            await asyncio.sleep(min(pause_s, _MAX_PAUSE_S))
        raise StoreUnavailable("too many concurrent writes to this record")

    async def read(self, layout: Layout, write: Write) -> Document | None:
        """Read the document on which a write is decided."""
        document = await self._session.find(layout, write.id, DECISION_PROJECTION)
        if document is None:
            return None
        if write.remember is not None:
            operations = [(write.id, write.operation)]
            await add_archived(self._session, layout, {document["_id"]: document}, operations)
        await measure(self._session, layout, [document])
        return document

    async def _make_room(self, layout: Layout, write: Write, *, bytes_: bool) -> bool:
        if write.remember is None and not bytes_:
            return False
        return await make_room(self._session, layout, write.id, bytes_=bytes_)

    async def _is_full(self, layout: Layout, write: Write) -> bool:
        return await self._session.find(layout, write.id, _ID, FULL) is not None

    async def decide(
        self, layout: Layout, write: Write, document: Document | None, token: str
    ) -> Decision:
        """Decide the effect of a write on a record as it was read; see `decision.decide`."""
        self._stamps.follow((document or {}).get("versions", {}).values())
        is_long = is_large(write.values) or is_large(document)
        stamp = self._stamps.next()
        return await offload(is_long, decide, layout, write, document, stamp, token)

    async def _apply(self, layout: Layout, decision: Decision) -> WriteResult | None:
        if decision is None or isinstance(decision, WriteResult):
            return decision
        return decision.result if await self._session.apply(layout, decision) else None


async def measure(session: MongoSession, layout: Layout, documents: Iterable[Document]) -> None:
    """Add their sizes to documents that were read in part and can be large.

    `_bytes` is only an upper bound (`sizes`); documents without it can also be large.
    """
    bounds = (
        (document, document.get("_bytes", sizes.MAX_DOCUMENT_BYTES)) for document in documents
    )
    large = {
        document["_id"]: document for document, bound in bounds if bound > sizes.MAX_VALUES_BYTES
    }
    if large:
        for stored_id, size in (await session.sizes(layout, list(large))).items():
            large[stored_id][sizes.MEASURED] = size


async def exceeding(single: SingleWriter, calls: Sequence[SizedWrite]) -> list[bool]:
    """Return which writes would be too large; see `Bounded.exceeding`.

    Only large records are read.
    """
    return [await _exceeds(single, write, state.size) for write, state in calls]


async def _exceeds(single: SingleWriter, write: Write, size: int | None) -> bool:
    layout = layout_of(write.fragment)
    if write.kind is WriteKind.DELETE or _fits(layout, write, size):
        return False
    document = await single.read(layout, write)
    if document is not None:
        document.pop("_intent", None)
    # Without the intent, under which it would be applied although it is too large.
    decision = await single.decide(layout, replace(write, intent=""), document, "")
    return isinstance(decision, WriteResult) and decision.status is Status.TOO_LARGE


def _fits(layout: Layout, write: Write, size: int | None) -> bool:
    """Whether a write certainly fits, given the upper bound of its record's size."""
    if size is None:
        return False
    entry = sizes.text_size(layout.effects.text(write, dict.fromkeys(write.groups, 0), 0))
    added = entry + sizes.size_of(layout.encode_all(write.values))
    if write.operators:
        added += _BSON_PER_JSON * entry
    # A remembered result contains the values a second time.
    return (size + added) * (1 if write.returning is None else 2) <= sizes.MAX_VALUES_BYTES


class _Stamps:
    """The store's clock in microseconds, without duplicates.

    It follows other processes whose clocks are slightly ahead: a write whose version is taken costs
    two more round trips.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return the time, later than all times returned before, unless the clock was set back."""
        now = int(self._clock.now() * 1_000_000)
        is_ahead = now <= self._last < now + _MAX_AHEAD_US
        self._last = self._last + 1 if is_ahead else now
        return self._last

    def follow(self, versions: Iterable[Any]) -> None:
        """Follow versions that are ahead by less than a second."""
        now = int(self._clock.now() * 1_000_000)
        for version in versions:
            if self._last < version < now + _MAX_AHEAD_US:
                self._last = int(version)
