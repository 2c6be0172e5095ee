"""What others than their coordinators do with blind writes that they find.

A blind write is committed once all of its records have its intent, whatever the log says of it; and
each intent carries all of the write. So the log may lose it (docs/transactions.md, "Blind writes").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mediator.base.concurrency import concurrently, result_or_error, results_or_raise
from mediator.base.errors import MediatorError, OutcomeUnknown
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import ForeignIntents, IntentStore
from mediator.stores.port import RecordKey
from mediator.transactions.log import State, TransactionEntry, TransactionLog
from mediator.transactions.plane import OperationPlane, route_if_any
from mediator.transactions.redo import staged_entry, written_records
from mediator.transactions.targets import LockTarget, record_keys

__all__ = ["BlindWrites"]

REFUSED_S: Final = 3600.0
"""How long a refused intent cannot be logged: longer than any call is under way."""


@dataclass(frozen=True, slots=True)
class BlindWrites:
    """Finds out whether blind writes have happened, and has the log say so."""

    _plane: OperationPlane
    _calls: StoreCalls
    _log: TransactionLog
    _intents: IntentStore

    async def make_known(self, unknown: ForeignIntents) -> dict[str, TransactionEntry]:
        """Log again what the log has lost, and refuse what it never had; returns the entries.

        From here on they cannot be logged otherwise, so what is removed as refused is no intent of
        a write that may still commit. An intent that has gone meanwhile is left alone: its write
        may go on.
        """
        refused = []
        for intent, keys in unknown.items():
            [state] = await self._intents.record_states(keys[:1], redo=True)
            if state.intent == intent and state.redo:
                # Its coordinator, if there is one, is not waited for: a fence stops it.
                await self._log.begin(staged_entry(keys[0][0].database, intent, state.redo), 0.0)
            elif state.intent == intent:
                refused.append(intent)
        if refused:
            await self._log.refuse(refused, REFUSED_S)
        return await self._log.find(list(unknown))

    async def commit_complete(self, entry: TransactionEntry, *, fences: bool = False) -> bool:
        """Have the log say of a staged write that has all its intents that it is committed.

        One of its records may have been written already. Then it was the last joint write of that
        record, and is until all of the intents are gone: none that comes later applies before.

        With `fences` it sets no more intents: once this returns false, it never has all of them.
        """
        if entry.state is not State.STAGED:
            return False
        records = await (self.fence(entry) if fences else self._records(entry))
        states = await self._intents.record_states(records)
        is_locked = all(entry.intent in (each.intent, each.joint) for each in states)
        return bool(states) and is_locked and await self._log.commit(entry.intent, entry.redo or [])

    async def fence(self, entry: TransactionEntry) -> list[RecordKey]:
        """Keep a blind write from setting intents from now on; returns its records."""
        records = await self._records(entry)
        await concurrently(self._calls.fence(*record, entry.intent) for record in records)
        return records

    async def _records(self, entry: TransactionEntry) -> list[RecordKey]:
        await self._plane.newest_model()
        records: list[RecordKey] = []
        for document in entry.redo or ():
            if route := await route_if_any(self._plane, entry.database, document["class"]):
                records += written_records(route, document)
        return records

    async def log_committed(self, entry: TransactionEntry, lease_s: float) -> None:
        """Have recovery find a blind write that is committed, even if the log has lost it."""
        redo = entry.redo or []
        known = await self._log.commit(entry.intent, redo)
        if not known and await self._log.begin(entry, lease_s):
            await self._log.commit(entry.intent, redo)

    async def abort(
        self, entry: TransactionEntry, targets: Sequence[LockTarget], *, refused: bool
    ) -> bool:
        """Have the log say that a write is aborted; false: it has happened, or will.

        What the log says is not enough: others may have completed the write, and the log have
        forgotten it, before its begin came late, or one who had met an intent logged it again. But
        a write that was refused an intent never had all of them, and one that has an intent left
        was not completed.

        Args:
            refused: Whether a record has refused its intent.

        Raises:
            Unavailable: The catalogue does not answer, nor a system that may show it.
            OutcomeUnknown: No record shows it: none has its intent, nor was written by it last.
        """
        while (state := await self._log.abort(entry.intent)) is None:
            await self._log.refuse([entry.intent], REFUSED_S)
        if state is not State.ABORTED or refused:
            return state is State.ABORTED
        look = self._intents.record_states
        looked = await concurrently(result_or_error(look, [key]) for key in record_keys(targets))
        found = [state for each in looked if not isinstance(each, MediatorError) for state in each]
        if any(state.intent == entry.intent for state in found):
            return True
        if any(state.joint == entry.intent for state in found):
            return False
        results_or_raise(looked)
        detail = "The object was written by others since; nothing shows whether this came before."
        raise OutcomeUnknown(detail, system="the catalogue")
