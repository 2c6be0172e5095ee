"""The transaction log: what decides whether a write over several systems has happened.

docs/transactions.md ("How it works") says what its states mean. Intents may be there before their
write is logged, and an entry that is not decided may be lost in a crash. A process that meets an
intent that the log does not know logs a blind write again, from what the intent carries; any other
it refuses first (`TransactionLog.refuse`), so that it cannot be logged from then on, and belongs to
no write, however late it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

__all__ = ["LONGEST_LEASE_S", "State", "TransactionEntry", "TransactionLog"]

LONGEST_LEASE_S: Final = 600.0
"""No lease is longer: an entry that is kept for longer is over."""


class State(StrEnum):
    """The state of a write: *committed* is the commit point."""

    PREPARING = "preparing"
    STAGED = "staged"
    """It is committed as soon as all its intents are set, whether the log says so or not.

    The log may lose it: its intents carry what is needed to log it again.
    """
    ABORTED = "aborted"
    COMMITTED = "committed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """A write over several systems as the log keeps it.

    Attributes:
        intent: Identifies this attempt at it, and no other; stands in the records.
        records: The objects on which it sets intents, and those to which foreign keys that it sets
            refer: class and id. An id that is empty stands for any object of the class.
        operation: The transaction's own id, if its answer is to be remembered.
        fingerprint: Of the request; with `operation`.
        redo: Once staged or committed: what is to be applied, as JSON.
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
    """Where writes are logged; what decides, durably.

    Every call raises `Unavailable` and nothing else.
    """

    async def begin(self, entry: TransactionEntry, lease_s: float) -> bool:
        """Add an entry, not durably; false if there is one, or it was refused.

        Nor is it added if there is one of the same operation. One that is staged is sent once, so
        none comes later.
        """

    async def commit(self, intent: str, redo: list[dict[str, Any]]) -> bool:
        """Make a write happen, unless it was aborted."""

    async def abort(self, intent: str) -> State | None:
        """Keep a write from happening unless it has, and leave it to recovery.

        Returns:
            Its state now; None: the log does not know it.
        """

    async def refuse(self, intents: Sequence[str], seconds: float) -> None:
        """Add those that are not known as *aborted*, for longer than a call can be under way."""

    async def finish(self, intent: str, answer: list[dict[str, Any]]) -> None:
        """Note that all is applied, and keep the answer."""

    async def remove(self, intents: Sequence[str]) -> None:
        """Forget entries whose intents are gone; no error if they are."""

    async def find(self, intents: Sequence[str]) -> dict[str, TransactionEntry]:
        """Return entries by their intents."""

    async def find_operation(self, operation: str) -> TransactionEntry | None:
        """Return the entry of an operation."""

    async def find_open(
        self, database: str, records: Sequence[Sequence[str]]
    ) -> dict[str, TransactionEntry]:
        """Return the entries that name one of these records, and are not over, by their intents."""

    async def take(self, limit: int, lease_s: float) -> list[TransactionEntry]:
        """Take over entries whose lease has passed; two replicas never take the same."""

    async def postpone(self, intent: str, seconds: float) -> None:
        """Let recovery take an entry over after so many seconds."""

    async def reap(self, limit: int) -> int:
        """Forget what is done and remembered long enough; return how many."""
