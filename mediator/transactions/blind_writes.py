"""Resolution of blind writes by processes other than their coordinators.

A blind write is committed once all its records have its intent, whatever the log says; and each
intent carries the whole write. So the log may lose it (docs/transactions.md, "Blind writes").
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
"""How long a refused intent cannot be logged: longer than any call takes."""


@dataclass(frozen=True, slots=True)
class BlindWrites:
    """Determines whether blind writes have happened, and records it in the log."""

    _plane: OperationPlane
    _calls: StoreCalls
    _log: TransactionLog
    _intents: IntentStore

    async def log_unknown(self, unknown: ForeignIntents) -> dict[str, TransactionEntry]:
        """Log again the writes that the log lost, and refuse those it never had; returns entries.

        From then on they cannot be logged otherwise, so no refused intent that is removed belongs
        to a write that may still commit. Intents removed meanwhile are left alone: their writes
        may continue.
        """
        refused = []
        for intent, keys in unknown.items():
            [state] = await self._intents.record_states(keys[:1], redo=True)
            if state.intent == intent and state.redo:
                # Do not wait for its coordinator, if alive: a fence stops it.
                await self._log.begin(staged_entry(keys[0][0].database, intent, state.redo), 0.0)
            elif state.intent == intent:
                refused.append(intent)
        if refused:
            await self._log.refuse(refused, REFUSED_S)
        return await self._log.find(list(unknown))

    async def commit_complete(self, entry: TransactionEntry, *, fences: bool = False) -> bool:
        """Log a staged write as committed if it has all its intents.

        A record that was written already has it as its last joint write until all intents are
        gone: no later write applies before that.

        With `fences` it sets no more intents: if this then returns false, it never has them all.
        """
        if entry.state is not State.STAGED:
            return False
        records = await (self.fence(entry) if fences else self._records(entry))
        states = await self._intents.record_states(records)
        is_locked = all(entry.intent in (state.intent, state.joint) for state in states)
        return bool(states) and is_locked and await self._log.commit(entry.intent, entry.redo or [])

    async def fence(self, entry: TransactionEntry) -> list[RecordKey]:
        """Prevent a blind write from setting further intents; returns its records."""
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
        """Log a blind write as committed for recovery, even if the log has lost it."""
        redo = entry.redo or []
        is_logged = await self._log.commit(entry.intent, redo)
        if not is_logged and await self._log.begin(entry, lease_s):
            await self._log.commit(entry.intent, redo)

    async def abort(
        self, entry: TransactionEntry, targets: Sequence[LockTarget], *, refused: bool
    ) -> bool:
        """Log a write as aborted; false: it has happened, or will.

        The log is not enough: another process may have completed the write, and the log forgotten
        it, before its late begin arrived, or before a process that had met an intent logged it
        again. But a write that was refused an intent never had all of them, and one that still has
        an intent was not completed.

        Args:
            refused: Whether a record has refused its intent.

        Raises:
            Unavailable: The catalogue does not answer, nor a system that may show it.
            OutcomeUnknown: No record shows it: none has its intent or was last written by it.
        """
        while (state := await self._log.abort(entry.intent)) is None:
            await self._log.refuse([entry.intent], REFUSED_S)
        if state is not State.ABORTED or refused:
            return state is State.ABORTED
        read = self._intents.record_states
        results = await concurrently(result_or_error(read, [key]) for key in record_keys(targets))
        states = [state for r in results if not isinstance(r, MediatorError) for state in r]
        if any(state.intent == entry.intent for state in states):
            return True
        if any(state.joint == entry.intent for state in states):
            return False
        results_or_raise(results)
        detail = "Other writes have changed the object since; nothing shows if this came before."
        raise OutcomeUnknown(detail, system="the catalogue")
