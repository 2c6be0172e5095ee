"""The port of a cluster's durable side: logs, queues and records, committed in one step.

A participant takes messages, changes, and sends messages. All of it is committed at once or not at
all, under the number of the step, so whoever dies is continued where its last commit was, and of
two processes that run one participant one is refused.
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
    """The cluster was dropped, or is another one by now."""

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
    """A participant's record, and how many steps it has committed; without any it is empty."""

    steps: int
    record: Mapping[str, Any]


@dataclass(slots=True)
class Commit:
    """A step of a participant.

    Attributes:
        step: 1 for the first.
        taken: The position of the last message of each sender.
        changed: Fields of the record, as JSON; None: removed.
        results: What a worker has emitted, as JSON.
    """

    address: str
    step: int
    taken: Mapping[str, str]
    outbox: Outbox
    changed: Mapping[str, bytes | None]
    results: Sequence[Any]


class ClusterStore(Protocol):
    """Where one cluster is kept. Every method raises `Unavailable`."""

    async def declare(self, layout: Any) -> bool:
        """Write down what all agree on, as JSON; false if there is such a cluster already."""

    async def layout(self) -> Any:
        """Return what was declared; None: nothing was."""

    async def append(
        self, relation: str, tuples: Sequence[tuple[float, Mapping[str, Any] | None]]
    ) -> None:
        """Log tuples in order; without values one is a heartbeat.

        Raises:
            ClusterGone: It was dropped since its layout was read.
            TooManyRequests: The log is full: the workers are too far behind.
        """

    async def log(self, relation: str, after: int, limit: int) -> list[LogEntry]:
        """Return what is logged behind a number."""

    async def trim(self, relation: str, before_s: float) -> None:
        """Drop the head of a log as far as it is older than a time; some of it, if it is long."""

    async def recorded(self, address: str) -> Recorded:
        """Return what a participant has committed."""

    async def field(self, addresses: Sequence[str], name: str) -> list[Any]:
        """Return one field of several records; None where there is none."""

    async def frames(
        self, address: str, senders: Sequence[str], log: tuple[str, int] | None, wait_s: float
    ) -> list[Frame]:
        """Return what is in a participant's queues; waits for it.

        Args:
            log: A relation and a number: or until more is logged than that.
        """

    async def waiting(self, address: str, receivers: Sequence[str]) -> int:
        """Return how many frames of a participant wait in its longest queue."""

    async def commit(self, commit: Commit) -> None:
        """Take, change and send.

        Raises:
            ClusterGone: It was dropped since its layout was read.
            TakenOver: The step was committed by another process.
        """

    async def request(self, message: Message) -> None:
        """Send the manager a message of an operator."""

    async def results(self, after: str, limit: int) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return what was emitted behind a position, by step, each with its own."""


class Clusters(Protocol):
    """All clusters. Every method raises `Unavailable`."""

    async def names(self) -> list[str]:
        """Return those that were declared, in order."""

    def of(self, name: str) -> ClusterStore:
        """Return where a cluster is kept, or would be."""

    async def drop(self, name: str, addresses: Sequence[str], relations: Sequence[str]) -> None:
        """Remove all that is kept of a cluster with these participants and logs."""
