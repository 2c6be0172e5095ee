"""The transaction log, which decides whether a write over several systems has happened.

docs/transactions.md ("How it works") explains its states. Intents can be set before their write is
logged, and a crash can lose an undecided entry. A process that meets an intent unknown to the log
logs a blind write again, from the redo record in the intent; it refuses any other intent first
(`TransactionLog.refuse`), so that it cannot be logged from then on, and belongs to no write,
however late it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

__all__ = ["MAX_LEASE_S", "State", "TransactionEntry", "TransactionLog"]

MAX_LEASE_S: Final = 600.0
"""Limit of all leases: an entry kept for longer is over."""


class State(StrEnum):
    """The state of a write: *committed* is the commit point."""

    PREPARING = "preparing"
    STAGED = "staged"
    """It is committed once all its intents are set, whether the log says so or not.

    The log may lose it: its intents carry the data to log it again.
    """
    ABORTED = "aborted"
    COMMITTED = "committed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """A log entry of a write over several systems.

    Attributes:
        intent: Identifies only this attempt of it; stored in the records.
        records: The objects on which it sets intents, and the targets of foreign keys that it
            sets: class and id. An empty id stands for any object of the class.
        operation: The id of the transaction, if its answer is to be remembered.
        fingerprint: The fingerprint of the request; set with `operation`.
        redo: Once staged or committed: the redo records, as JSON.
        answer: Once done: the answer to a retry, as JSON.
        overdue: Whether its lease has passed.
    """

    intent: str
    database: str
    records: list[list[str]]
    operation: str | None = None
    fingerprint: str | None = None
    state: State = State.PREPARING
    redo: list[dict[str, Any]] | None = None
    answer: list[dict[str, Any]] | None = None
    overdue: bool = False


class TransactionLog(Protocol):
    """The durable log of writes, which decides about them.

    Every call raises `Unavailable` and nothing else.
    """

    async def begin(self, entry: TransactionEntry, lease_s: float) -> bool:
        """Add an entry, not durably; false if it exists, or was refused.

        Nor is it added if the operation has an entry already. Staged entries are sent once, so
        none comes later.
        """

    async def commit(self, intent: str, redo: list[dict[str, Any]]) -> bool:
        """Make a write happen, unless it was aborted."""

    async def abort(self, intent: str) -> State | None:
        """Prevent a write unless it has happened, and leave it to recovery.

        Returns:
            Its state after the call; None: the log does not know it.
        """

    async def refuse(self, intents: Sequence[str], seconds: float) -> None:
        """Add unknown intents as *aborted*, for longer than a call can take."""

    async def finish(self, intent: str, answer: list[dict[str, Any]]) -> None:
        """Record that the write is fully applied, with its answer."""

    async def remove(self, intents: Sequence[str]) -> None:
        """Delete entries whose intents are gone; no error if missing."""

    async def find(self, intents: Sequence[str]) -> dict[str, TransactionEntry]:
        """Return entries by their intents."""

    async def find_operation(self, operation: str) -> TransactionEntry | None:
        """Return the entry of an operation."""

    async def find_open(
        self, database: str, records: Sequence[Sequence[str]]
    ) -> dict[str, TransactionEntry]:
        """Return the open entries that name one of these records, by intent."""

    async def take(self, limit: int, lease_s: float) -> list[TransactionEntry]:
        """Take over entries whose lease has passed; no two replicas take the same one."""

    async def postpone(self, intent: str, seconds: float) -> None:
        """Let recovery take over an entry after `seconds`."""

    async def reap(self, limit: int) -> int:
        """Delete done entries whose retention has passed; return how many."""
