"""A split: reads the log of one relation, and routes tuples to the workers of their partitions.

Each relation has its own split, and splits do not switch simultaneously; markers in their queues
tell when they did. A split depends only on the log and on its messages, so a dead split continues
from its record, and a buffer is just a position in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from mediator.relocation.messages import (
    MANAGER,
    DeactivatePartitions,
    DuplicationMarker,
    DuplicationOrder,
    Marker,
    Message,
    ReactivatePartitions,
    Reply,
    Routed,
    Watermark,
    split_address,
)
from mediator.standing.co_partitioning import partition_of
from mediator.standing.model import Attribute
from mediator.standing.state import JoinedTuple, StreamTuple

__all__ = ["BEGINNING_S", "Layout", "LogEntry", "Outbox", "Split"]

Outbox = list[tuple[str, Message]]
"""Messages to send, with the addresses of their receivers."""

BEGINNING_S: Final = -1e15
"""Before any time; JSON does not have minus infinity."""


class LogEntry(NamedTuple):
    """A tuple of the log; or a heartbeat, without values: no earlier tuple follows.

    Attributes:
        number: Consecutive, from 1.
        latest_s: The latest time up to this entry, which tells its readers whether it is late.
    """

    number: int
    time_s: float
    values: Mapping[str, Any] | None
    latest_s: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout shared by all participants.

    Attributes:
        attributes: By relation, the attribute by which it is partitioned.
        workers: The addresses of all workers.
        owners: The initial owner of each partition.
        lateness_s: How much earlier a tuple can be than a preceding one in the same log.
        heartbeat_s: How far a watermark advances before it is sent to workers.
    """

    attributes: Mapping[str, Attribute]
    workers: Sequence[str]
    owners: Sequence[str]
    lateness_s: float
    heartbeat_s: float

    def partition(self, relation: str, entry: LogEntry) -> int | None:
        """Return the partition of a tuple; None: nothing equals its value."""
        assert entry.values is not None
        item = JoinedTuple.of(StreamTuple(relation, entry.time_s, entry.values))
        return partition_of(item.key(self.attributes[relation]), len(self.owners))

    def is_late(self, entry: LogEntry) -> bool:
        return entry.time_s < entry.latest_s - self.lateness_s


@dataclass(slots=True)
class _Route:
    """The route of a partition's tuples.

    Attributes:
        copy_to: The receiver of a parallel track; the owner's tuples are then new.
        buffered_from: The number of the first buffered tuple.
    """

    owner: str
    copy_to: str | None = None
    buffered_from: int | None = None


@dataclass(slots=True)
class Split:
    """The split of a relation.

    Attributes:
        late: Tuples dropped for being earlier than the watermark of their relation.
        unmatchable: Tuples without a partitioning value, which join nothing.
        buffered: Buffered tuples.
    """

    relation: str
    layout: Layout
    position: int = 0
    latest_s: float = BEGINNING_S
    sent_s: float = BEGINNING_S
    late: int = 0
    unmatchable: int = 0
    routes: dict[int, _Route] = field(default_factory=dict)
    handled: tuple[int, list[str]] = (0, [])
    buffered: list[Routed] = field(default_factory=list)
    outbox: Outbox = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.routes:
            self.routes = {at: _Route(owner) for at, owner in enumerate(self.layout.owners)}

    @property
    def address(self) -> str:
        return split_address(self.relation)

    def read(self, entry: LogEntry) -> None:
        """Take the next entry of the log; ignore entries taken before."""
        if entry.number <= self.position:
            return
        self.position = entry.number
        if (routed := self._route_entry(entry)) is not None:
            route = self.routes[routed.partition]
            if route.buffered_from is not None:
                self.buffered.append(routed)
            else:
                self._send(route, routed)
        self.latest_s = entry.latest_s
        if self.watermark_s >= self.sent_s + self.layout.heartbeat_s:
            self.send_watermark()

    @property
    def watermark_s(self) -> float:
        return self.latest_s - self.layout.lateness_s

    def send_watermark(self) -> None:
        """Send the watermark to all workers, if it has advanced."""
        if self.watermark_s > self.sent_s:
            self.sent_s = self.watermark_s
            for worker in self.layout.workers:
                self.outbox.append((worker, Watermark(self.relation, self.sent_s)))

    def handle(self, message: Message) -> None:
        """Execute an order of the manager, unless it is a repetition."""
        relocation, kinds = self.handled
        number = getattr(message, "relocation", 0)
        if number < relocation or (number == relocation and message.kind in kinds):
            return
        self.handled = (number, [*(kinds if number == relocation else []), message.kind])
        match message:
            case DuplicationOrder("delete-partitions"):
                self._delete(message)
            case DuplicationOrder():
                self._duplicate(message)
            case DeactivatePartitions():
                self._deactivate(message)
            case ReactivatePartitions():
                self._reactivate(message)
            case _:
                raise TypeError(message)

    def record(self) -> dict[str, Any]:
        """Return the durable state of the split."""
        routes = {
            str(partition): asdict(route)
            for partition, route in self.routes.items()
            if route != _Route(self.layout.owners[partition])
        }
        return {
            "position": self.position,
            "times": [self.latest_s, self.sent_s],
            "counts": [self.late, self.unmatchable],
            "handled": list(self.handled),
            "routes": routes,
        }

    def restore(self, record: Mapping[str, Any], log: Iterable[LogEntry]) -> None:
        """Continue from a record; the buffer is read from the log."""
        self.position = record["position"]
        self.latest_s, self.sent_s = record["times"]
        self.late, self.unmatchable = record["counts"]
        relocation, kinds = record["handled"]
        self.handled = (relocation, kinds)
        for partition, route in record["routes"].items():
            self.routes[int(partition)] = _Route(**route)
        counts = self.late, self.unmatchable
        for entry in log:
            if entry.number <= self.position and (routed := self._route_entry(entry)) is not None:
                since = self.routes[routed.partition].buffered_from
                if since is not None and since <= routed.number:
                    self.buffered.append(routed)
        self.late, self.unmatchable = counts

    @property
    def is_buffering(self) -> bool:
        return any(route.buffered_from is not None for route in self.routes.values())

    def _route_entry(self, entry: LogEntry) -> Routed | None:
        if entry.values is None:
            return None
        if self.layout.is_late(entry):
            self.late += 1
            return None
        partition = self.layout.partition(self.relation, entry)
        if partition is None:
            self.unmatchable += 1
            return None
        return Routed(self.relation, entry.number, entry.time_s, entry.values, partition)

    def _send(self, route: _Route, routed: Routed) -> None:
        if route.copy_to is None:
            self.outbox.append((route.owner, routed))
            return
        # Only the owner can tell old from new, as it has both; for the receiver, all are old.
        self.outbox.append((route.owner, replace(routed, is_new=True)))
        self.outbox.append((route.copy_to, routed))

    def _duplicate(self, message: DuplicationOrder) -> None:
        starts = message.kind == "duplicate-partitions"
        for partition in message.partitions:
            self.routes[partition].copy_to = message.receiver if starts else None
        head = (message.relocation, self.relation, message.partitions, self.position + 1)
        marker = partial(
            DuplicationMarker, "begin-duplication" if starts else "end-of-duplication", *head
        )
        self.outbox.append((message.sender, marker("sender")))
        self.outbox.append((message.receiver, marker("receiver")))

    def _delete(self, message: DuplicationOrder) -> None:
        for partition in message.partitions:
            self.routes[partition] = _Route(message.receiver)
        head = (message.relocation, self.relation, message.partitions)
        self.outbox.append((message.sender, Marker("end-of-partitions", *head)))

    def _deactivate(self, message: DeactivatePartitions) -> None:
        for partition in message.partitions:
            self.routes[partition].buffered_from = self.position + 1
        head = (message.relocation, self.relation, message.partitions)
        self.outbox.append((message.sender, Marker("end-of-partition-input", *head)))
        self.outbox.append((MANAGER, Reply("deactivated", message.relocation, self.address)))

    def _reactivate(self, message: ReactivatePartitions) -> None:
        for partition in message.partitions:
            self.routes[partition] = _Route(message.owner)
        # In the order of the log, and before any later tuple.
        self.outbox += [(message.owner, routed) for routed in self.buffered]
        self.buffered = []
        head = (message.relocation, self.relation, message.partitions)
        self.outbox.append((message.owner, Marker("resumed", *head)))
        self.outbox.append((MANAGER, Reply("reactivated", message.relocation, self.address)))
