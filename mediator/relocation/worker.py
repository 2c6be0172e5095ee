"""A worker: owns partition groups, executes its plan for them, and takes part in moving them.

Its state follows from the logs and from a small record of what it has processed of each partition.
A dead worker thus continues from its record, and only the record must be durable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mediator.relocation.choice import choose_partitions
from mediator.relocation.join_states import JoinStates, adopt
from mediator.relocation.messages import (
    MANAGER,
    ComputePartitionsToMove,
    DuplicationMarker,
    Group,
    Marker,
    Message,
    Notice,
    PartitionsToMove,
    Received,
    ReceivePartitions,
    Reply,
    Reported,
    Role,
    Routed,
    SendPartitions,
    Watermark,
)
from mediator.relocation.split import BEGINNING_S, Layout, LogEntry, Outbox

__all__ = ["Holding", "Worker"]

_PURGES_PER_WINDOW: Final = 8
"""Steps in which the tuples of a window are purged."""


@dataclass(slots=True)
class Holding:
    """A worker's progress in a partition that it holds; by relation.

    Attributes:
        processed: The number of the last tuple processed.
        since: The number of the first tuple; earlier ones were another worker's.
        frozen: A relocation, and a watermark that holds until that relocation has resumed: buffered
            tuples may be as old.
        relocation: The last relocation in which this worker sent the partition, or tried to.
        role: The role in the running duplication.
        switched: The number of the first duplicated tuple.
        stopped: The number of the first tuple after a cancelled duplication.
        ended: Relations whose splits have sent their last marker.
    """

    processed: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    frozen: dict[str, tuple[int, float]] = field(default_factory=dict)
    relocation: int = 0
    role: Role | None = None
    switched: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


class Worker:
    """Executes a plan for the partition groups that it holds.

    Args:
        window_s: The longest window of all queries.
        adaptive: Whether the plan changes as rates change.

    Attributes:
        holdings: By partition.
        closed: The last relocation that has ended for this worker: late repetitions are ignored.
        ignored: Tuples that were delivered repeatedly.
    """

    def __init__(
        self, address: str, layout: Layout, states: JoinStates, window_s: float, *, adaptive: bool
    ) -> None:
        self.address = address
        self.states = states
        self.outbox: Outbox = []
        self.results: list[Any] = []
        self.holdings = {
            at: Holding() for at, owner in enumerate(layout.owners) if owner == address
        }
        self.watermarks = dict.fromkeys(layout.attributes, BEGINNING_S)
        self.closed = 0
        self.purged = 0
        self.ignored = 0
        self._layout = layout
        self._window_s = window_s
        self._adaptive = adaptive
        self._purged_s = BEGINNING_S
        self._tuples = self._work = 0
        self._handlers: Mapping[str, Callable[[Any], None]] = {
            "routed": self._insert,
            "watermark": self._advance,
            "report": self._report,
            "compute-partitions-to-move": self._compute,
            "begin-duplication": self._begin_duplication,
            "end-of-partitions": self._end,
            "end-of-duplication": self._stop,
            "end-of-partition-input": self._freeze,
            "send-partitions": self._ship,
            "receive-partitions": self._receive,
            "resumed": self._resume,
        }

    def handle(self, message: Message) -> None:
        # Messages of a relocation that has ended for this worker are repetitions.
        if getattr(message, "relocation", self.closed + 1) > self.closed:
            self._handlers[message.kind](message)

    def watermark_s(self, partition: int) -> float:
        """Return the time from which tuples of a partition may still arrive."""
        frozen = self.holdings[partition].frozen
        return min(
            frozen[name][1] if name in frozen else reached_s
            for name, reached_s in self.watermarks.items()
        )

    def rows(self) -> dict[int, int]:
        """Return how many rows each partition has."""
        return {at: sum(self.states.rows(at).values()) for at in self.holdings}

    def record(self) -> dict[str, Any]:
        """Return the durable state of the worker, which is always small.

        `horizon_s` is for the splits: older log entries are in no state of this worker. `rows` are
        for people.
        """
        holdings = {f"holding/{at}": asdict(holding) for at, holding in self.holdings.items()}
        reached = [self.watermark_s(at) for at in self.holdings] or self.watermarks.values()
        return {
            "horizon_s": min(reached) - self._window_s,
            "rows": {str(at): count for at, count in self.rows().items()},
            "watermarks": dict(self.watermarks),
            "relocations": [self.closed, self.purged],
            "shape": {name: list(order) for name, order in self.states.shape.items()},
            **holdings,
        }

    def restore(self, record: Mapping[str, Any], logs: Mapping[str, Iterable[LogEntry]]) -> None:
        """Continue from a record; the state is the processed tuples that windows still reach."""
        self.watermarks = dict(record["watermarks"])
        self.closed, self.purged = record["relocations"]
        self.states.reshape(record["shape"])
        self.holdings = {}
        for name, fields in record.items():
            head, _, partition = name.partition("/")
            if head == "holding":
                frozen = {at: (pair[0], pair[1]) for at, pair in fields["frozen"].items()}
                self.holdings[int(partition)] = Holding(**{**fields, "frozen": frozen})
        tuples: defaultdict[int, list[Routed]] = defaultdict(list)
        for relation, log in logs.items():
            for entry in log:
                if (routed := self._processed_tuple(relation, entry)) is not None:
                    tuples[routed.partition].append(routed)
        for at, holding in self.holdings.items():
            if holding.role == "sender":
                self.states.begin(at, holding.relocation)
            self.states.restore(at, tuples[at])

    def _processed_tuple(self, relation: str, entry: LogEntry) -> Routed | None:
        """Return a log entry as a tuple with its flag, if it is in this worker's state."""
        if entry.values is None or self._layout.is_late(entry):
            return None
        partition = self._layout.partition(relation, entry)
        holding = None if partition is None else self.holdings.get(partition)
        if partition is None or holding is None:
            return None
        first, last = holding.since.get(relation, 0), holding.processed.get(relation, 0)
        if not first <= entry.number <= last:
            return None
        if entry.time_s < self.watermark_s(partition) - self._window_s:
            return None
        until = holding.stopped.get(relation, entry.number + 1)
        is_new = holding.switched.get(relation, until) <= entry.number < until
        return Routed(relation, entry.number, entry.time_s, entry.values, partition, is_new)

    def _insert(self, routed: Routed) -> None:
        holding = self.holdings.get(routed.partition)
        if holding is None or routed.number <= holding.processed.get(routed.relation, 0):
            self.ignored += 1
            return
        holding.processed[routed.relation] = routed.number
        work_before = self.states.work
        self.results += self.states.insert(routed.partition, routed)
        self._tuples, self._work = self._tuples + 1, self._work + self.states.work - work_before

    def _advance(self, message: Watermark) -> None:
        if message.time_s <= self.watermarks[message.relation]:
            return
        self.watermarks[message.relation] = message.time_s
        self._inspect()
        reached_s = min(self.watermarks.values())
        if reached_s >= self._purged_s + self._window_s / _PURGES_PER_WINDOW:
            self._purged_s = reached_s
            for partition in self.holdings:
                self.states.purge(partition, self.watermark_s(partition))
            # The distant past tells little about the current cost of a tuple.
            self._tuples, self._work = self._tuples // 2, self._work // 2
            if self._adaptive and (shape := self.states.cheaper_shape(reached_s)) is not None:
                self.states.reshape(shape)

    def _report(self, message: Notice) -> None:
        total_rows = sum(self.rows().values())
        reported = Reported(message.relocation, self.address, total_rows, tuple(self.states.ids))
        self.outbox.append((MANAGER, reported))

    def _compute(self, message: ComputePartitionsToMove) -> None:
        for partition in self.holdings:
            self.states.purge(partition, self.watermark_s(partition))
        chosen = tuple(choose_partitions(self.rows(), message.amount))
        rows: defaultdict[str, int] = defaultdict(int)
        arriving = 0
        for partition in chosen:
            arriving += self.states.arriving(partition, self.watermark_s(partition))
            for state, count in self.states.rows(partition).items():
                rows[state] += count
        repeated = round(arriving * self._work / max(self._tuples, 1))
        reply = PartitionsToMove(message.relocation, chosen, dict(rows), repeated)
        self.outbox.append((MANAGER, reply))

    def _begin_sending(self, message: DuplicationMarker) -> None:
        for partition in message.partitions:
            holding = self.holdings[partition]
            if holding.relocation < message.relocation:
                self._enter(holding, message.relocation)
                holding.role = "sender"
                self.states.begin(partition, message.relocation)
            holding.switched.setdefault(message.relation, message.number)
        self._inspect()

    def _begin_duplication(self, message: DuplicationMarker) -> None:
        begin = self._begin_sending if message.role == "sender" else self._begin_receiving
        begin(message)

    def _begin_receiving(self, message: DuplicationMarker) -> None:
        for partition in message.partitions:
            holding = self.holdings.setdefault(partition, Holding())
            if message.relation not in holding.since:
                holding.since[message.relation] = message.number
                holding.processed[message.relation] = message.number - 1

    def _inspect(self) -> None:
        """Check whether the old tuples are gone: by inspecting every state, never by time."""
        sending = [at for at, holding in self.holdings.items() if holding.role == "sender"]
        if not sending or (relocation := self.holdings[sending[0]].relocation) == self.purged:
            return
        for partition in sending:
            # A split that has not switched yet may still send old tuples.
            if len(self.holdings[partition].switched) < len(self.watermarks):
                return
            if self.states.holds_old(partition, self.watermark_s(partition)):
                return
        self.purged = relocation
        self.outbox.append((MANAGER, Notice("all-old-purged", relocation)))

    def _end(self, message: Marker) -> None:
        if self._have_all(message):
            self._drop(message.partitions)
            self.closed = message.relocation
            self.outbox.append((MANAGER, Notice("deleted", message.relocation)))

    def _stop(self, message: DuplicationMarker) -> None:
        for partition in message.partitions:
            self.holdings[partition].stopped.setdefault(message.relation, message.number)
        if not self._have_all(message):
            return
        if message.role == "receiver":
            self._drop(message.partitions)
        else:
            for partition in message.partitions:
                self.holdings[partition].role = None
                self.holdings[partition].switched = {}
                self.holdings[partition].stopped = {}
                self.states.end(partition)
        self.closed = message.relocation
        self.outbox.append((MANAGER, Reply("stopped", message.relocation, self.address)))

    def _freeze(self, message: Marker) -> None:
        for partition in message.partitions:
            holding = self.holdings[partition]
            if holding.relocation > message.relocation:
                return  # a repetition, of a cancelled relocation
            if holding.relocation < message.relocation:
                self._enter(holding, message.relocation)
            if message.relation not in holding.ended:
                reached_s = self.watermarks[message.relation]
                holding.frozen[message.relation] = (message.relocation, reached_s)
        if self._have_all(message):
            self.outbox.append((MANAGER, Reply("deactivated", message.relocation, self.address)))

    def _ship(self, message: SendPartitions) -> None:
        groups = []
        for partition in message.partitions:
            self.states.purge(partition, self.watermark_s(partition))
            holding = self.holdings[partition]
            watermarks = {name: reached_s for name, (_, reached_s) in holding.frozen.items()}
            states = self.states.export(partition)
            groups.append(Group(partition, states, holding.processed, watermarks))
        self._drop(message.partitions)
        self.closed = message.relocation
        shipped = ReceivePartitions(message.relocation, tuple(groups))
        self.outbox.append((message.receiver, shipped))

    def _receive(self, message: ReceivePartitions) -> None:
        moved = discarded = recomputed = 0
        for group in message.groups:
            if group.partition in self.holdings:
                return  # a repetition
            frozen = {name: (message.relocation, at_s) for name, at_s in group.watermarks.items()}
            self.holdings[group.partition] = Holding(dict(group.processed), frozen=frozen)
            adopted = adopt(self.states, group)
            moved += adopted.moved
            discarded += adopted.discarded
            recomputed += adopted.recomputed
        received = Received(message.relocation, moved, discarded, recomputed)
        self.outbox.append((MANAGER, received))

    def _resume(self, message: Marker) -> None:
        for partition in message.partitions:
            frozen = self.holdings[partition].frozen
            if frozen.get(message.relation, (0, 0.0))[0] == message.relocation:
                del frozen[message.relation]

    def _have_all(self, message: Marker | DuplicationMarker) -> bool:
        """Record a marker; return whether it is the last: all tuples in flight have arrived."""
        is_last = False
        for partition in message.partitions:
            ended = self.holdings[partition].ended
            if message.relation not in ended:
                ended.append(message.relation)
                is_last = len(ended) == len(self.watermarks)
        return is_last

    def _enter(self, holding: Holding, relocation: int) -> None:
        holding.relocation = relocation
        holding.switched, holding.stopped, holding.ended = {}, {}, []

    def _drop(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.states.drop(partition)
            del self.holdings[partition]
