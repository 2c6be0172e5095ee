"""The port of the queue of messages: partitions in order of their creation, shared by replicas.

A batch is acknowledged after its execution. Until then a lease names its worker; if the lease
expires, another worker gets the batch, so a lost worker loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from mediator.model.pause import Pause
from mediator.model.result_position import ResultPosition

__all__ = [
    "LEASE_S",
    "LEVEL_DIGITS",
    "MAX_QUEUED",
    "Batch",
    "DeadLetter",
    "End",
    "Ended",
    "EndedMessage",
    "EndedMessages",
    "FlowKey",
    "FlowLoad",
    "MessageQueue",
    "NewMessage",
    "NoBatch",
    "QueuedMessage",
    "Recorded",
    "Replayed",
    "Ticket",
]

LEASE_S: Final = 10.0
LEVEL_DIGITS: Final = 32
MAX_QUEUED: Final = 10_000
"""Maximum messages of a flow that have not ended, including dead letters."""


class FlowKey(NamedTuple):
    """A flow: the id of its database, which is never reused, and its own id."""

    database: str
    flow: str


class NewMessage(NamedTuple):
    """A message to queue.

    Attributes:
        partition: Its values of each level by which it can be queued, in `LEVEL_DIGITS` digits
            each. Messages of one batch are equal at the current level.
    """

    ticket: str
    partition: str
    body: bytes


class QueuedMessage(NamedTuple):
    """A message of a batch.

    Attributes:
        position: Its position in the order of arrival.
        arrived_ms: Time of arrival, by the clock of the queue.
    """

    position: int
    arrived_ms: int
    ticket: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """A partition for a worker to execute.

    Attributes:
        attempt: 1 at its first execution.
        partitions: Number of partitions when it was taken, this one included.
        arrived: Total messages of the flow that have ever arrived.
        level: The level by which messages are queued now.
        is_behind: Whether the queue has not caught up yet after a pause.
    """

    number: int
    attempt: int
    partitions: int
    arrived: int
    level: int
    is_behind: bool
    messages: tuple[QueuedMessage, ...]


@dataclass(frozen=True, slots=True)
class NoBatch:
    """No batch is due now; `due_in_s` until the next one is, if any message waits.

    While a flow is paused, it is the time until the end of the pause.
    """

    due_in_s: float | None


class End(StrEnum):
    DONE = "done"
    FAILED = "failed"


class Ended(NamedTuple):
    """The end of a message's execution.

    Attributes:
        document: Its result, or its dead letter.
        attempt: How many workers have started to send it, this one included.
    """

    message: QueuedMessage
    end: End
    document: bytes
    attempt: int = 1

    @property
    def is_repeated(self) -> bool:
        """Whether a former worker may have sent it before."""
        return self.attempt > 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded ends of messages; `late`: how many exceeded the latency bound."""

    late: int


class Ticket(NamedTuple):
    """State of a message: `queued`, `done` or `failed`, the last two with a document."""

    state: str
    document: Any = None


class DeadLetter(NamedTuple):
    """A message that failed.

    Attributes:
        position: Its position in the list of dead letters.
        age_s: Seconds since it arrived, even if it was replayed since.
    """

    position: int
    ticket: str
    document: Any
    age_s: float


class Replayed(NamedTuple):
    """How many dead letters were queued again, and how many `expired` ones were not."""

    replayed: int
    expired: int


class EndedMessage(NamedTuple):
    """An ended message; `position`: after it, in the order in which messages ended."""

    position: ResultPosition
    ticket: str
    end: End
    document: Any


class EndedMessages(NamedTuple):
    """Messages that ended up to a position, except those whose documents are no longer kept."""

    position: ResultPosition
    items: list[EndedMessage]


class FlowLoad(NamedTuple):
    """Measurements of a flow for admission control.

    Attributes:
        queued: Messages that have not ended, except dead letters.
        late: Messages that exceeded the latency bound in the last 30 to 60 seconds.
        late_ever: Messages that ever exceeded it.
        paused_s: Seconds for which the flow is still paused.
    """

    queued: int
    late: int
    late_ever: int
    paused_s: float


class MessageQueue(Protocol):
    """The queues of all flows. Every method raises `Unavailable`, with an unknown outcome."""

    async def put_flow(
        self, key: FlowKey, document: Mapping[str, Any], bound_s: float, limit: int
    ) -> bool:
        """Store a flow with its latency bound; false if its database already has `limit`."""

    async def flows(self) -> set[FlowKey]:
        """Return all flows."""

    async def flow(self, key: FlowKey) -> Any:
        """Return a flow's document, which never changes; None: no such flow."""

    async def drop_flow(self, key: FlowKey) -> bool:
        """Remove a flow and its messages; false if none exists."""

    async def clear(self, database: str) -> None:
        """Remove all flows of a dropped database."""

    async def enqueue(
        self, key: FlowKey, messages: Sequence[NewMessage], retry: tuple[str, str] | None
    ) -> str | None:
        """Queue all messages or none.

        Args:
            messages: At least one, each with its own ticket.
            retry: Idempotency-Key and fingerprint of the request; remembered for as long as stores
                remember the writes of its messages.

        Returns:
            None; or the first ticket of the request that queued them before under the same key.

        Raises:
            NotFound: There is no such flow.
            TooManyRequests: The queue is full.
            IdempotencyReused: The key was used for other messages.
        """

    async def replay(self, key: FlowKey, messages: Sequence[NewMessage]) -> int:
        """Queue dead letters again, after all messages; return how many there were."""

    async def take(self, key: FlowKey, token: str, wait_s: float) -> Batch | NoBatch:
        """Lease the batch of a lost worker, or every `wait_s` the oldest partition."""

    async def pause(self, key: FlowKey, pause: Pause) -> bool | None:
        """Hand out no batches for some time; messages are queued as before.

        Returns:
            False if the flow was already paused: it now is until the end of this pause; None: no
            such flow.
        """

    async def resume(self, key: FlowKey) -> bool:
        """End a pause; false if none exists."""

    async def end_pauses(self, keys: Collection[FlowKey], before: int) -> None:
        """End the pauses by rules of versions before this one."""

    async def loads(self, keys: Collection[FlowKey]) -> list[FlowLoad]:
        """Return the loads of flows, in order; a removed flow has nothing queued."""

    async def renew(self, key: FlowKey, batch: int | None, token: str) -> bool:
        """Renew the lease of a batch, or (None) of sending in order; false if it is lost."""

    async def end_batch(
        self,
        key: FlowKey,
        batch: int,
        token: str,
        ended: Sequence[Ended],
        counts: Mapping[str, int],
        *,
        ordered: bool,
    ) -> Recorded | None:
        """End the next messages of a batch; None if its lease is not held, and nothing was done.

        The batch ends with its last message. If its worker dies before, another one gets the
        messages that have not ended. Messages that have ended are skipped, so a repeated call ends
        none of them twice.

        Args:
            key: The flow's.
            batch: Its number.
            token: The token of the worker that holds the lease.
            ended: Some MiB at most, in the order of the batch.
            counts: The counts of the batch, added when it ends.
            ordered: Whether messages end only by `release`, in order of arrival.
        """

    async def next_held(self, key: FlowKey, token: str, limit: int) -> list[Ended]:
        """Return the held messages that are next in order; none if another worker sends them.

        Args:
            key: The flow's.
            token: The worker's token.
            limit: Maximum messages; fewer if they exceed a MiB.
        """

    async def release(
        self, key: FlowKey, token: str, ended: Ended, counts: Mapping[str, int]
    ) -> Recorded | None:
        """End the message that is next in order; None if another worker sends it."""

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket | None:
        """Return the state of a message; None: unknown, or its result is no longer kept."""

    async def dead_letters(self, key: FlowKey, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters after a position."""

    async def set_level(self, key: FlowKey, level: int) -> None:
        """Queue messages by another level from now on; queued messages stay where they are.

        Does nothing for a removed flow.
        """

    async def results(
        self, key: FlowKey, after: ResultPosition | None, limit: int
    ) -> EndedMessages:
        """Return the messages that ended after a position; None: from the oldest known on.

        Raises:
            NotFound: There is no such flow.
            PositionGone: The messages after the position are no longer known, or it does not exist.
        """

    async def publish(self, key: FlowKey, report: Mapping[str, Any]) -> None:
        """Replace the report of the flow's worker; does nothing for a removed flow."""

    async def report(self, key: FlowKey) -> dict[str, Any]:
        """Return counts, sizes, the level, the pause (if any) and the last report."""
