"""A single write: first in one round trip; where that does not apply, by looking and deciding."""

from __future__ import annotations

import asyncio
from typing import Final

from pymongo.errors import DuplicateKeyError, OperationFailure

from mediator.base.offload import is_large, offload
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout
from mediator.stores.mongo.outbox.entries import FULL
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.write.attempt import Attempt, attempt
from mediator.stores.mongo.write.decision import Verdict, judge
from mediator.stores.mongo.write.stamps import Stamps
from mediator.stores.port import StoreBusy, StoreUnavailable, Write, WriteKind, WriteResult

__all__ = ["ENTIRE", "SingleWriter"]

_TRIES: Final = 64
_FIRST_WAIT_S: Final = 0.0005
_LONGEST_WAIT_S: Final = 0.05

_PATIENCE: Final = 20
"""Tries, within about a second, before a write gives up on a full outbox."""

ENTIRE: Final[Document] = BOOKKEEPING | {
    "values": 1,
    "_ops": 1,
    "_settled": 1,
    "_fences": 1,
    "_intent": 1,
}
"""What is read of a record to decide on a write."""

_ID: Final[Document] = {"_id": 1}

_UNFIT: Final = frozenset({2, 14, 28})
"""BadValue, TypeMismatch, PathNotViable: a modifier met a value that its guard let through."""


class SingleWriter:
    """Applies one write at a time.

    Args:
        session: The session.
        stamps: The store's clock.
    """

    def __init__(self, session: Session, stamps: Stamps) -> None:
        self._session = session
        self._stamps = stamps

    async def write(self, layout: Layout, write: Write, token: str) -> WriteResult:
        """Apply a write."""
        result = await self._attempt(layout, write, token)
        return result or await self.decide(layout, write, token)

    async def _attempt(self, layout: Layout, write: Write, token: str) -> WriteResult | None:
        """Try in one round trip; None if that did not apply."""
        if write.kind is WriteKind.CREATE and not (write.expect or write.intent):
            verdict = await self.judge(layout, write, None, token)
            return await self._apply(layout, verdict)
        chance = await self.chance(layout, write, token)
        if chance is None:
            return None
        try:
            applied, document = await self._session.modify(layout, chance)
        except DuplicateKeyError:
            return None
        except OperationFailure as error:
            if error.code in _UNFIT:
                return None
            raise
        return chance.answer(document) if applied else None

    async def chance(self, layout: Layout, write: Write, token: str) -> Attempt | None:
        """Translate a write; None if it takes a look at its record first, see `attempt`."""
        stamp = self._stamps.next()
        return await offload(is_large(write.values), attempt, layout, write, stamp, token)

    async def decide(self, layout: Layout, write: Write, token: str) -> WriteResult:
        """Look at the record, decide, and write if it is still the same; again if it is not."""
        for tries in range(_TRIES):
            document = await self._session.find(layout, write.id, ENTIRE)
            verdict = await self.judge(layout, write, document, token)
            result = await self._apply(layout, verdict)
            if result is not None:
                return result
            if tries >= _PATIENCE and await self._session.find(layout, write.id, _ID, FULL):
                raise StoreBusy("this record takes no more writes until its changes are relayed")
            await asyncio.sleep(min(_FIRST_WAIT_S * 2**tries, _LONGEST_WAIT_S))
        raise StoreUnavailable("too many others write this record")

    async def judge(
        self, layout: Layout, write: Write, document: Document | None, token: str
    ) -> Verdict:
        """Decide what a write does to a record as it was read; see `judge`."""
        self._stamps.seen((document or {}).get("versions", {}).values())
        is_long = is_large(write.values) or is_large(document)
        stamp = self._stamps.next()
        return await offload(is_long, judge, layout, write, document, stamp, token)

    async def _apply(self, layout: Layout, verdict: Verdict) -> WriteResult | None:
        if isinstance(verdict, WriteResult):
            return verdict
        return verdict.result if await self._session.apply(layout, verdict) else None
