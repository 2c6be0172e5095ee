"""What the manager, the splits and the workers send to each other; each is one JSON object.

Queues are first in, first out for each sender and receiver, and may repeat what they delivered. So
a control message names its relocation, and a routed tuple its number in the log of its relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter

__all__ = [
    "MANAGER",
    "MESSAGE",
    "OPERATOR",
    "STRATEGIES",
    "AllOldPurged",
    "BeginDuplication",
    "Cancel",
    "ComputePartitionsToMove",
    "DeactivatePartitions",
    "Deactivated",
    "DeletePartitions",
    "Deleted",
    "DuplicatePartitions",
    "EndOfDuplication",
    "EndOfPartitionInput",
    "EndOfPartitions",
    "Group",
    "Message",
    "PartitionsToMove",
    "ReactivatePartitions",
    "Reactivated",
    "ReceivePartitions",
    "Received",
    "Relocate",
    "Report",
    "Reported",
    "Resumed",
    "Role",
    "Routed",
    "SendPartitions",
    "StopDuplication",
    "Stopped",
    "Strategy",
    "Watermark",
    "split_address",
]

Strategy: TypeAlias = Literal["ptlb", "mslb", "auto"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
Role: TypeAlias = Literal["sender", "receiver"]

MANAGER: Final = "manager"
OPERATOR: Final = "operator"
"""From whom the manager takes `Relocate` and `Cancel`."""


def split_address(relation: str) -> str:
    return f"split:{relation}"


@dataclass(frozen=True, slots=True)
class Relocate:
    """Move partition groups; the manager chooses what is empty.

    Attributes:
        amount: Rows of state that are to be moved; 0: the manager chooses.
    """

    strategy: Strategy
    sender: str = ""
    receiver: str = ""
    amount: int = 0
    kind: Literal["relocate"] = "relocate"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give a relocation up, unless it is past its point of no return."""

    relocation: int
    kind: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class Report:
    """Ask a worker what it holds."""

    relocation: int
    kind: Literal["report"] = "report"


@dataclass(frozen=True, slots=True)
class Reported:
    """What a worker holds.

    Attributes:
        held: Rows of all states.
        states: The ids of its states.
    """

    relocation: int
    worker: str
    held: int
    states: tuple[str, ...]
    kind: Literal["reported"] = "reported"


@dataclass(frozen=True, slots=True)
class ComputePartitionsToMove:
    relocation: int
    amount: int
    kind: Literal["compute-partitions-to-move"] = "compute-partitions-to-move"


@dataclass(frozen=True, slots=True)
class PartitionsToMove:
    """What the sender would give away.

    Attributes:
        rows: Of each state that its partitions have, which is what shipping them moves.
        repeated: Rows that would be made twice, if tuples went to both for a window.
    """

    relocation: int
    partitions: tuple[int, ...]
    rows: Mapping[str, int]
    repeated: int
    kind: Literal["partitions-to-move"] = "partitions-to-move"


@dataclass(frozen=True, slots=True)
class DuplicatePartitions:
    relocation: int
    partitions: tuple[int, ...]
    sender: str
    receiver: str
    kind: Literal["duplicate-partitions"] = "duplicate-partitions"


@dataclass(frozen=True, slots=True)
class BeginDuplication:
    """A split's marker: from this number on, tuples go to both.

    Without it a sender might find no old tuple in its state before a slow split has switched.
    """

    relocation: int
    relation: str
    partitions: tuple[int, ...]
    number: int
    role: Role
    kind: Literal["begin-duplication"] = "begin-duplication"


@dataclass(frozen=True, slots=True)
class AllOldPurged:
    relocation: int
    kind: Literal["all-old-purged"] = "all-old-purged"


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    relocation: int
    partitions: tuple[int, ...]
    sender: str
    receiver: str
    kind: Literal["delete-partitions"] = "delete-partitions"


@dataclass(frozen=True, slots=True)
class EndOfPartitions:
    """A split's marker: no tuple of these partitions follows in this queue."""

    relocation: int
    relation: str
    partitions: tuple[int, ...]
    kind: Literal["end-of-partitions"] = "end-of-partitions"


@dataclass(frozen=True, slots=True)
class Deleted:
    relocation: int
    kind: Literal["deleted"] = "deleted"


@dataclass(frozen=True, slots=True)
class StopDuplication:
    """Give a parallel track up: all is the sender's again."""

    relocation: int
    partitions: tuple[int, ...]
    sender: str
    receiver: str
    kind: Literal["stop-duplication"] = "stop-duplication"


@dataclass(frozen=True, slots=True)
class EndOfDuplication:
    """A split's marker: from this number on, tuples go to the sender only."""

    relocation: int
    relation: str
    partitions: tuple[int, ...]
    number: int
    role: Role
    kind: Literal["end-of-duplication"] = "end-of-duplication"


@dataclass(frozen=True, slots=True)
class Stopped:
    """A worker has the end of the duplication from all splits."""

    relocation: int
    by: str
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True, slots=True)
class DeactivatePartitions:
    relocation: int
    partitions: tuple[int, ...]
    sender: str
    kind: Literal["deactivate-partitions"] = "deactivate-partitions"


@dataclass(frozen=True, slots=True)
class EndOfPartitionInput:
    """A split's marker: what follows of these partitions is buffered."""

    relocation: int
    relation: str
    partitions: tuple[int, ...]
    kind: Literal["end-of-partition-input"] = "end-of-partition-input"


@dataclass(frozen=True, slots=True)
class Deactivated:
    relocation: int
    by: str
    kind: Literal["deactivated"] = "deactivated"


@dataclass(frozen=True, slots=True)
class SendPartitions:
    relocation: int
    partitions: tuple[int, ...]
    receiver: str
    kind: Literal["send-partitions"] = "send-partitions"


@dataclass(frozen=True, slots=True)
class Group:
    """All that is kept of a partition.

    Attributes:
        states: Rows by state id; what a row is only the states know.
        processed: The number of the last tuple of each relation that is in them.
        watermarks: Until where they have been purged, by relation: tuples that were buffered may
            be as old as these.
    """

    partition: int
    states: Mapping[str, list[Any]]
    processed: Mapping[str, int]
    watermarks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReceivePartitions:
    relocation: int
    groups: tuple[Group, ...]
    kind: Literal["receive-partitions"] = "receive-partitions"


@dataclass(frozen=True, slots=True)
class Received:
    """Rows that matched a state, had none, and were made anew."""

    relocation: int
    moved: int
    discarded: int
    recomputed: int
    kind: Literal["received"] = "received"


@dataclass(frozen=True, slots=True)
class ReactivatePartitions:
    relocation: int
    partitions: tuple[int, ...]
    owner: str
    kind: Literal["reactivate-partitions"] = "reactivate-partitions"


@dataclass(frozen=True, slots=True)
class Resumed:
    """A split's marker: what was buffered has been sent, and watermarks hold again."""

    relocation: int
    relation: str
    partitions: tuple[int, ...]
    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True)
class Reactivated:
    relocation: int
    by: str
    kind: Literal["reactivated"] = "reactivated"


@dataclass(frozen=True, slots=True)
class Routed:
    """A tuple, sent by the split of its relation.

    Attributes:
        number: Its position in the log of the relation.
        is_new: Whether the receiver of a parallel track gets it too: never set on its own copy.
    """

    relation: str
    number: int
    time_s: float
    values: Mapping[str, Any]
    partition: int
    is_new: bool = False
    kind: Literal["routed"] = "routed"


@dataclass(frozen=True, slots=True)
class Watermark:
    """No tuple of the relation that follows in this queue is from before."""

    relation: str
    time_s: float
    kind: Literal["watermark"] = "watermark"


Message: TypeAlias = Annotated[
    Relocate
    | Cancel
    | Report
    | Reported
    | ComputePartitionsToMove
    | PartitionsToMove
    | DuplicatePartitions
    | BeginDuplication
    | AllOldPurged
    | DeletePartitions
    | EndOfPartitions
    | Deleted
    | StopDuplication
    | Stopped
    | EndOfDuplication
    | DeactivatePartitions
    | EndOfPartitionInput
    | Deactivated
    | SendPartitions
    | ReceivePartitions
    | Received
    | ReactivatePartitions
    | Resumed
    | Reactivated
    | Routed
    | Watermark,
    Field(discriminator="kind"),
]

MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Message)
"""Reads a message, and makes one JSON."""
