"""The log of transactions: what decides whether one has happened.

A transaction is known to the log from before its first mark until after its last one is gone. So a
mark of which the log knows nothing belongs to nobody, however late it came.

========== =====================================================================================
marking    it sets its marks and validates; from here it may only become *aborted* or *committed*
aborted    it has not happened, and never will; its marks are taken away
committed  it has happened: this is the commit point. Its writes are applied, by whoever it be
done       all of it is applied; kept for as long as its answer is to be remembered
========== =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

__all__ = ["Entry", "State", "TransactionLog"]


class State(StrEnum):
    """Where a transaction stands."""

    MARKING = "marking"
    ABORTED = "aborted"
    COMMITTED = "committed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction as the log keeps it.

    Attributes:
        mark: Names this attempt at it, and no other; what is set on records.
        database: Name of the database.
        places: The objects that it writes: class and id.
        operation: The transaction's own id, if its answer is to be remembered.
        fingerprint: Of the request; with `operation`.
        state: Where it stands.
        redo: Once committed: what is to be applied, as JSON.
        answer: Once done: what is answered to a retry, as JSON.
        overdue: Whether its lease has passed.
    """

    mark: str
    database: str
    places: list[list[str]]
    operation: str | None = None
    fingerprint: str | None = None
    state: State = State.MARKING
    redo: list[dict[str, Any]] | None = None
    answer: list[dict[str, Any]] | None = None
    overdue: bool = False


class TransactionLog(Protocol):
    """Where transactions are logged, durably. Every call raises `Unavailable` and nothing else."""

    async def begin(self, entry: Entry, lease_s: float) -> Entry | None:
        """Add an entry; returns the one that there is of the same operation, instead."""

    async def commit(self, mark: str, redo: list[dict[str, Any]]) -> bool:
        """Make a transaction happen, unless it was aborted."""

    async def abort(self, mark: str) -> bool:
        """Keep a transaction from happening; false if it has."""

    async def finish(self, mark: str, answer: list[dict[str, Any]]) -> None:
        """Note that all is applied; an entry without operation is forgotten."""

    async def remove(self, mark: str) -> None:
        """Forget an entry; no error if it is gone."""

    async def find(self, mark: str) -> Entry | None:
        """Return an entry."""

    async def find_operation(self, operation: str) -> Entry | None:
        """Return the entry of an operation."""

    async def claim(self, mark: str, lease_s: float) -> Entry | None:
        """Take an entry over under a new lease, if its own has passed."""

    async def take(self, limit: int, lease_s: float) -> list[Entry]:
        """Take over entries whose lease has passed; two replicas never take the same."""

    async def postpone(self, mark: str, seconds: float) -> None:
        """Let others take an entry over after so many seconds."""

    async def reap(self, limit: int) -> int:
        """Forget what is done and remembered long enough; return how many."""
