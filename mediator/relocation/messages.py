"""Messages between the manager, the splits and the workers; each is one JSON object.

Queues are FIFO for each sender and receiver, and may deliver messages repeatedly. A control message
therefore has the id of its relocation, and a routed tuple its number in the log of its relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field

__all__ = [
    "MANAGER",
    "OPERATOR",
    "STRATEGIES",
    "Cancel",
    "ComputePartitionsToMove",
    "DeactivatePartitions",
    "DuplicationMarker",
    "DuplicationOrder",
    "Group",
    "Marker",
    "Message",
    "Notice",
    "PartitionsToMove",
    "ReactivatePartitions",
    "ReceivePartitions",
    "Received",
    "Relocate",
    "Reply",
    "Reported",
    "Role",
    "Routed",
    "SendPartitions",
    "Strategy",
    "Watermark",
    "split_address",
]

Strategy: TypeAlias = Literal["ptlb", "mslb", "auto"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
Role: TypeAlias = Literal["sender", "receiver"]

MANAGER: Final = "manager"
OPERATOR: Final = "operator"
"""The sender of `Relocate` and `Cancel` to the manager."""


def split_address(relation: str) -> str:
    return f"split:{relation}"


@dataclass(frozen=True, slots=True)
class Relocate:
    """Move partition groups; the manager chooses empty members.

    Attributes:
        amount: Rows of state to move; 0: the manager chooses.
    """

    strategy: Strategy
    sender: str = ""
    receiver: str = ""
    amount: int = 0
    kind: Literal["relocate"] = "relocate"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a relocation, unless it is past its point of no return."""

    relocation: int
    kind: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message with nothing but its kind.

    `report` requests a worker's `Reported`. `all-old-purged` and `deleted` are its replies in a
    parallel track.
    """

    kind: Literal["report", "all-old-purged", "deleted"]
    relocation: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a split or a worker (at address `by`) that the manager waits for."""

    kind: Literal["deactivated", "reactivated", "stopped"]
    relocation: int
    by: str


@dataclass(frozen=True, slots=True)
class DuplicationOrder:
    """Splits start, end or cancel a parallel track; if cancelled, the sender owns all again."""

    kind: Literal["duplicate-partitions", "delete-partitions", "stop-duplication"]
    relocation: int
    partitions: tuple[int, ...]
    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A statement of a split about all that follows in this queue.

    After `end-of-partitions`, no tuple of the partitions follows; after `end-of-partition-input`,
    they are buffered. Before `resumed`, buffered tuples were sent; watermarks hold again.
    """

    kind: Literal["end-of-partitions", "end-of-partition-input", "resumed"]
    relocation: int
    relation: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DuplicationMarker:
    """The number from which a split sends tuples to both, or to the sender only.

    Without it, a sender might have no old tuple in its state before a slow split has switched.
    """

    kind: Literal["begin-duplication", "end-of-duplication"]
    relocation: int
    relation: str
    partitions: tuple[int, ...]
    number: int
    role: Role


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker's report of its state.

    Attributes:
        held: Total rows of all states.
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
    """The partitions that the sender proposes to move.

    Attributes:
        rows: Rows of each state of these partitions, which shipping would move.
        repeated: Rows that would be made twice if tuples went to both for a window.
    """

    relocation: int
    partitions: tuple[int, ...]
    rows: Mapping[str, int]
    repeated: int
    kind: Literal["partitions-to-move"] = "partitions-to-move"


@dataclass(frozen=True, slots=True)
class DeactivatePartitions:
    relocation: int
    partitions: tuple[int, ...]
    sender: str
    kind: Literal["deactivate-partitions"] = "deactivate-partitions"


@dataclass(frozen=True, slots=True)
class SendPartitions:
    relocation: int
    partitions: tuple[int, ...]
    receiver: str
    kind: Literal["send-partitions"] = "send-partitions"


@dataclass(frozen=True, slots=True)
class Group:
    """The entire state of a partition.

    Attributes:
        states: Rows by state id; only the states interpret rows.
        processed: The number of the last tuple of each relation in them.
        watermarks: The watermarks up to which they were purged, by relation: buffered tuples may be
            as old as these.
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
    """Rows that matched a state, rows that matched none, and recomputed rows."""

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
class Routed:
    """A tuple sent by the split of its relation.

    Attributes:
        number: Its position in the log of the relation.
        is_new: Whether the receiver of a parallel track gets it as well; never set on its copy.
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
    """No earlier tuple of the relation follows in this queue."""

    relation: str
    time_s: float
    kind: Literal["watermark"] = "watermark"


Message: TypeAlias = Annotated[
    Relocate
    | Cancel
    | Notice
    | Reply
    | Reported
    | ComputePartitionsToMove
    | PartitionsToMove
    | DuplicationOrder
    | DuplicationMarker
    | Marker
    | DeactivatePartitions
    | SendPartitions
    | ReceivePartitions
    | Received
    | ReactivatePartitions
    | Routed
    | Watermark,
    Field(discriminator="kind"),
]
