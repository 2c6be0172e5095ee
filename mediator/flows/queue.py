"""The port of the queue of messages: partitions in order of their creation, shared by replicas.

A batch is acknowledged after its execution. Until then a lease says who executes it; when that
ends, another worker gets the batch, so nothing is lost with a worker.
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
    "MOST_QUEUED",
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
MOST_QUEUED: Final = 10_000
"""Messages of a flow that have not ended, its dead letters included."""


class FlowKey(NamedTuple):
    """A flow: the id of its database, which no other has had, and its own."""

    database: str
    flow: str


class NewMessage(NamedTuple):
    """A message to be queued.

    Attributes:
        partition: What it has of each level that it may be queued by, `LEVEL_DIGITS` of each. Of
            the present one they are equal for messages of one batch.
    """

    ticket: str
    partition: str
    body: bytes


class QueuedMessage(NamedTuple):
    """A message of a batch.

    Attributes:
        position: Its place in the order of arrival.
        arrived_ms: When it arrived, by the clock of the queue.
    """

    position: int
    arrived_ms: int
    ticket: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """A partition that a worker is to execute.

    Attributes:
        attempt: 1 when it is given out for the first time.
        partitions: How many there were when it was taken, this one included.
        arrived: Messages of the flow that have arrived, ever.
        level: By which messages are queued now.
        is_behind: Whether the queue has not caught up yet with what a pause has delayed.
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
    """Nothing to be executed now; `due_in_s` until the next batch is, if any message waits.

    While a flow is paused: until its pause ends.
    """

    due_in_s: float | None


class End(StrEnum):
    DONE = "done"
    FAILED = "failed"


class Ended(NamedTuple):
    """How the execution of a message ended.

    Attributes:
        document: Its result, or its dead letter.
        attempt: How many workers have begun to send it, this one included; 1: nobody did before.
    """

    message: QueuedMessage
    end: End
    document: bytes
    attempt: int = 1

    @property
    def is_repeated(self) -> bool:
        """Whether a worker that is gone may have sent it before."""
        return self.attempt > 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """Ends of messages were recorded; `late`: how many were beyond the latency bound."""

    late: int


class Ticket(NamedTuple):
    """State of a message: `queued`, `done` or `failed`; the document of the last two."""

    state: str
    document: Any = None


class DeadLetter(NamedTuple):
    """A message that failed.

    Attributes:
        position: Where it stands in the list of dead letters.
        age_s: Seconds since it arrived, whether it was replayed since or not.
    """

    position: int
    ticket: str
    document: Any
    age_s: float


class Replayed(NamedTuple):
    """How many dead letters were queued again, and how many `expired` ones were left."""

    replayed: int
    expired: int


class EndedMessage(NamedTuple):
    """`position`: after it, in the order in which messages ended."""

    position: ResultPosition
    ticket: str
    end: End
    document: Any


class EndedMessages(NamedTuple):
    """Messages that ended up to a position, without those whose documents are kept no longer."""

    position: ResultPosition
    items: list[EndedMessage]


class FlowLoad(NamedTuple):
    """What admission control knows of a flow.

    Attributes:
        queued: Messages that have not ended, without dead letters.
        late: Those that ended beyond the latency bound in the last 30 to 60 seconds.
        late_ever: Those that ever did.
        paused_s: Seconds for which the flow is still paused.
    """

    queued: int
    late: int
    late_ever: int
    paused_s: float


class MessageQueue(Protocol):
    """Queues of all flows. Every method raises `Unavailable`; then it may have happened or not."""

    async def put_flow(
        self, key: FlowKey, document: Mapping[str, Any], bound_s: float, most: int
    ) -> bool:
        """Write down a flow with its latency bound; false if its database has `most` already."""

    async def flows(self) -> set[FlowKey]:
        """Return all flows."""

    async def flow(self, key: FlowKey) -> Any:
        """Return the document of a flow, which never changes; None: there is no such flow."""

    async def drop_flow(self, key: FlowKey) -> bool:
        """Remove a flow and its messages; false if there is none."""

    async def clear(self, database: str) -> None:
        """Remove all flows of a database that was dropped."""

    async def enqueue(
        self, key: FlowKey, messages: Sequence[NewMessage], retry: tuple[str, str] | None
    ) -> str | None:
        """Queue all messages, or none.

        Args:
            messages: At least one, with tickets of their own.
            retry: Idempotency-Key of the request, and its fingerprint; it is known for as long as
                stores know the writes of its messages.

        Returns:
            None; the ticket of the first message of the request that queued them before under the
            same key.

        Raises:
            NotFound: There is no such flow.
            TooManyRequests: The queue is full.
            IdempotencyReused: The key was used for other messages.
        """

    async def replay(self, key: FlowKey, messages: Sequence[NewMessage]) -> int:
        """Queue dead letters again, behind all messages; return how many there were."""

    async def take(self, key: FlowKey, token: str, wait_s: float) -> Batch | NoBatch:
        """Lease a batch of a worker that is gone; else the oldest partition, every `wait_s`."""

    async def pause(self, key: FlowKey, pause: Pause) -> bool | None:
        """Let no batch be taken for some time; messages are queued as before.

        Returns:
            False if the flow was paused before, and is until now on; None: there is no such flow.
        """

    async def resume(self, key: FlowKey) -> bool:
        """End a pause; false if there is none."""

    async def end_pauses(self, keys: Collection[FlowKey], before: int) -> None:
        """End the pauses by rules of versions before this one."""

    async def loads(self, keys: Collection[FlowKey]) -> list[FlowLoad]:
        """Return the loads of flows, in their order; nothing is queued in one that is gone."""

    async def renew(self, key: FlowKey, batch: int | None, token: str) -> bool:
        """Prolong the lease of a batch, or (None) of who sends in order; false if it is lost."""

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
        """End the next messages of a batch; None if its lease is not held: nothing was done then.

        The batch ends with its last message. If its worker dies before, another one gets it with
        the messages that have not ended. Messages that were ended before are left alone, so a call
        that is sent again ends none of them twice.

        Args:
            key: The flow's.
            batch: Its number.
            token: Of the worker that holds the lease.
            ended: Some MiB at most, in the order in which the batch has them.
            counts: What the batch counts; added when it ends.
            ordered: Whether each message ends only by `release`, in the order of arrival.
        """

    async def next_held(self, key: FlowKey, token: str, most: int) -> list[Ended]:
        """Return the messages held that are next in order; none if another worker does that.

        Args:
            key: The flow's.
            token: Of the worker.
            most: Messages; fewer if they have more than a MiB.
        """

    async def release(
        self, key: FlowKey, token: str, ended: Ended, counts: Mapping[str, int]
    ) -> Recorded | None:
        """End a message that is next in order; None if another worker does that."""

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket | None:
        """Return the state of a message; None: unknown, or its result is kept no longer."""

    async def dead_letters(self, key: FlowKey, after: int, most: int) -> list[DeadLetter]:
        """Return dead letters behind a position."""

    async def set_level(self, key: FlowKey, level: int) -> None:
        """Queue messages by another level from now on; those that are queued stay where they are.

        A flow that is gone stays so.
        """

    async def results(self, key: FlowKey, after: ResultPosition | None, most: int) -> EndedMessages:
        """Return what ended behind a position; None: from the oldest that is known on.

        Raises:
            NotFound: There is no such flow.
            PositionGone: What ended behind the position is not known any more, or there is no such
                position.
        """

    async def publish(self, key: FlowKey, report: Mapping[str, Any]) -> None:
        """Replace the report of the flow's worker; a flow that is gone stays so."""

    async def report(self, key: FlowKey) -> dict[str, Any]:
        """Return counts, sizes, the level, the pause if there is one, and the last report."""
