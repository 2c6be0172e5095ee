"""The port of a cluster's durable state: logs, queues and records, committed in one step.

A participant takes messages, changes its state, and sends messages. All of this is committed
atomically under the number of the step, so a dead participant continues from its last commit, and
if two processes run one participant, one of them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mediator.base.errors import NotFound
from mediator.relocation.messages import Message
from mediator.relocation.split import LogEntry, Outbox

__all__ = ["ClusterGone", "ClusterStore", "Clusters", "Commit", "Frame", "Recorded", "TakenOver"]


class ClusterGone(NotFound):
    """The cluster was dropped or replaced."""

    def __init__(self) -> None:
        super().__init__("The cluster was dropped.")


class TakenOver(Exception):
    """Another process runs this participant."""


class Frame(NamedTuple):
    """Messages of one sender, in order, with the position of the last in its queue."""

    sender: str
    position: str
    messages: Sequence[Message]


class Recorded(NamedTuple):
    """A participant's record, empty without commits, and its number of committed steps."""

    steps: int
    record: Mapping[str, Any]


@dataclass(slots=True)
class Commit:
    """A step of a participant.

    Attributes:
        step: The number of the step, from 1.
        taken: The position of the last message taken from each sender.
        changed: Changed fields of the record, as JSON; None: removed.
        results: Results emitted by a worker, as JSON.
    """

    address: str
    step: int
    taken: Mapping[str, str]
    outbox: Outbox
    changed: Mapping[str, bytes | None]
    results: Sequence[Any]


class ClusterStore(Protocol):
    """The store of one cluster. Every method raises `Unavailable`."""

    async def declare(self, layout: Any) -> bool:
        """Store the declaration, as JSON; false if the cluster already exists."""

    async def layout(self) -> Any:
        """Return the declaration; None: no such cluster."""

    async def append(
        self, relation: str, tuples: Sequence[tuple[float, Mapping[str, Any] | None]]
    ) -> None:
        """Log tuples in order; a tuple without values is a heartbeat.

        Raises:
            ClusterGone: The cluster was dropped since its layout was read.
            TooManyRequests: The log is full: the workers are too far behind.
        """

    async def log(self, relation: str, after: int, limit: int) -> list[LogEntry]:
        """Return the entries after a number."""

    async def trim(self, relation: str, before_s: float) -> None:
        """Drop entries older than a time from the head of a log; only some if there are many."""

    async def recorded(self, address: str) -> Recorded:
        """Return the committed state of a participant."""

    async def field(self, addresses: Sequence[str], name: str) -> list[Any]:
        """Return one field of several records; None where it is missing."""

    async def frames(
        self, address: str, senders: Sequence[str], log: tuple[str, int] | None, wait_s: float
    ) -> list[Frame]:
        """Return the frames in a participant's queues, waiting for some.

        Args:
            log: A relation and a number: also stop waiting once later entries are logged.
        """

    async def waiting(self, address: str, receivers: Sequence[str]) -> int:
        """Return the number of a participant's waiting frames in its longest queue."""

    async def commit(self, commit: Commit) -> None:
        """Atomically take messages, change the record and send messages.

        Raises:
            ClusterGone: The cluster was dropped since its layout was read.
            TakenOver: Another process committed the step.
        """

    async def request(self, message: Message) -> None:
        """Send an operator's message to the manager."""

    async def results(self, after: str, limit: int) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return the results emitted after a position, by step, each with its position."""


class Clusters(Protocol):
    """All clusters. Every method raises `Unavailable`."""

    async def names(self) -> list[str]:
        """Return the names of declared clusters, in order."""

    def of(self, name: str) -> ClusterStore:
        """Return the store of a cluster, which need not exist."""

    async def drop(self, name: str, addresses: Sequence[str], relations: Sequence[str]) -> None:
        """Remove everything of a cluster with these participants and logs."""
