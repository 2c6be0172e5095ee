"""The distribution manager: one relocation at a time, step by step, as an explicit state machine.

| phase | waits for | then |
|---|---|---|
| `reporting` | `Reported` of all workers | chooses the pair and the amount |
| `computing` | `PartitionsToMove` | chooses the protocol, unless requested |
| `duplicating` | `all-old-purged` of the sender | `delete-partitions`: no return |
| `deleting` | `deleted` of the sender | ends |
| `deactivating` | `deactivated` of the sender and of all splits | `SendPartitions`: no return |
| `moving` | `Received` of the receiver | `ReactivatePartitions` |
| `reactivating` | `reactivated` of all splits | ends |
| `stopping` | `stopped` of both workers | ends, cancelled |
| `resuming` | `reactivated` of all splits, to the sender | ends, cancelled |

A message that the phase does not await is a repetition, or was overtaken by `Cancel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from mediator.relocation.choice import choose_pair, choose_strategy
from mediator.relocation.messages import (
    Cancel,
    ComputePartitionsToMove,
    DeactivatePartitions,
    DuplicationOrder,
    Message,
    Notice,
    PartitionsToMove,
    ReactivatePartitions,
    Received,
    Relocate,
    Reply,
    Reported,
    SendPartitions,
    Strategy,
    split_address,
)
from mediator.relocation.split import Layout, Outbox

__all__ = ["ENDED", "Manager", "Phase", "Relocation"]

Phase: TypeAlias = Literal[
    "reporting",
    "computing",
    "duplicating",
    "deleting",
    "deactivating",
    "moving",
    "reactivating",
    "stopping",
    "resuming",
    "done",
    "cancelled",
    "nothing-to-move",
    "refused",
]

ENDED: Final = frozenset({"done", "cancelled", "nothing-to-move", "refused"})
_MAX_ENDED: Final = 100
"""Maximum relocations remembered after their end."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A relocation, and its progress.

    Attributes:
        strategy: The requested strategy; `chosen` is the one in use.
        sender: Empty until it is chosen, like the receiver.
        amount: Rows to move; 0 until it is chosen.
        waiting_for: Addresses that have not replied in this phase.
        held: Rows of each worker at the start.
        states: The state ids of each worker.
        moved: Shipped rows with a matching state at the receiver.
        discarded: Shipped rows without one.
        recomputed: Rows that the receiver has computed instead.
    """

    id: int
    strategy: Strategy
    phase: Phase
    sender: str
    receiver: str
    amount: int
    chosen: Literal["ptlb", "mslb"] | None = None
    partitions: tuple[int, ...] = ()
    waiting_for: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moved: int = 0
    discarded: int = 0
    recomputed: int = 0


class Manager:
    """Decides on relocations and coordinates both protocols; it sees no tuples.

    Attributes:
        relocations: By id, the current one and the last ones.
    """

    def __init__(self, layout: Layout) -> None:
        self._workers = list(layout.workers)
        self._splits = [split_address(name) for name in layout.attributes]
        self._last = 0
        self.relocations: dict[int, Relocation] = {}
        self.outbox: Outbox = []
        self._steps: Mapping[tuple[str, Phase], Callable[[Relocation, Any], None]] = {
            ("reported", "reporting"): self._on_reported,
            ("partitions-to-move", "computing"): self._on_computed,
            ("all-old-purged", "duplicating"): self._on_old_purged,
            ("deleted", "deleting"): self._on_deleted,
            ("deactivated", "deactivating"): self._on_deactivated,
            ("received", "moving"): self._on_received,
            ("reactivated", "reactivating"): self._on_reactivated,
            ("reactivated", "resuming"): self._on_cancelled,
            ("stopped", "stopping"): self._on_cancelled,
        }

    @property
    def present(self) -> Relocation | None:
        """The relocation in progress; None: none."""
        last = self.relocations.get(self._last)
        return None if last is None or last.phase in ENDED else last

    def handle(self, message: Message) -> None:
        if isinstance(message, Relocate):
            self._start(message)
            return
        current = self.present
        if current is None or getattr(message, "relocation", 0) != current.id:
            return
        if isinstance(message, Cancel):
            self._cancel(current)
        elif (step := self._steps.get((message.kind, current.phase))) is not None:
            step(current, message)

    def record(self) -> dict[str, Any]:
        """Return the durable state of the manager."""
        return {
            "last": self._last,
            **{f"relocation/{id_}": asdict(entry) for id_, entry in self.relocations.items()},
        }

    def restore(self, record: Mapping[str, Any]) -> None:
        self._last = record["last"]
        for name, fields in record.items():
            if name.startswith("relocation/"):
                states = {at: tuple(ids) for at, ids in fields["states"].items()}
                lists = {name: tuple(fields[name]) for name in ("partitions", "waiting_for")}
                relocation = Relocation(**{**fields, **lists, "states": states})
                self.relocations[relocation.id] = relocation

    def _start(self, message: Relocate) -> None:
        is_busy = self.present is not None
        are_workers = {message.sender, message.receiver} <= {"", *self._workers}
        are_equal = message.sender != "" and message.sender == message.receiver
        is_refused = is_busy or not are_workers or are_equal or len(self._workers) == 1
        # The last id stays that of the running relocation, which a refusal must not hide.
        number = max(self.relocations, default=0) + 1
        requested = (message.strategy, message.sender, message.receiver, message.amount)
        if is_refused:
            self._note(Relocation(number, requested[0], "refused", *requested[1:]))
            self._last = self._last if is_busy else number
            return
        self._last = number
        self._note(Relocation(number, requested[0], "reporting", *requested[1:]))
        self._enter(self.relocations[number], "reporting", self._workers)
        self._send(self._workers, Notice("report", number))

    def _on_reported(self, current: Relocation, message: Reported) -> None:
        held = {**current.held, message.worker: message.held}
        states = {**current.states, message.worker: message.states}
        current = replace(current, held=held, states=states)
        if waiting := self._still_waiting(current, message.worker):
            self._note(replace(current, waiting_for=waiting))
            return
        pair = choose_pair(held, current.sender, current.receiver)
        amount = current.amount or pair.amount
        current = replace(current, sender=pair.sender, receiver=pair.receiver, amount=amount)
        if amount <= 0:
            self._enter(current, "nothing-to-move")
            return
        self._enter(current, "computing", [pair.sender])
        self._send([pair.sender], ComputePartitionsToMove(current.id, amount))

    def _on_computed(self, current: Relocation, message: PartitionsToMove) -> None:
        current = replace(current, partitions=message.partitions)
        if not message.partitions:
            self._enter(current, "nothing-to-move")
            return
        chosen = current.strategy
        if chosen == "auto":
            states = current.states[current.receiver]
            chosen = choose_strategy(message.rows, states, message.repeated)
        head = (current.id, message.partitions, current.sender)
        if chosen == "ptlb":
            self._enter(replace(current, chosen="ptlb"), "duplicating", [current.sender])
            self._send(
                self._splits, DuplicationOrder("duplicate-partitions", *head, current.receiver)
            )
        else:
            waiting = [current.sender, *self._splits]
            self._enter(replace(current, chosen="mslb"), "deactivating", waiting)
            self._send(self._splits, DeactivatePartitions(*head))

    def _on_old_purged(self, current: Relocation, _: Notice) -> None:
        self._enter(current, "deleting", [current.sender])
        head = (current.id, current.partitions, current.sender, current.receiver)
        self._send(self._splits, DuplicationOrder("delete-partitions", *head))

    def _on_deleted(self, current: Relocation, _: Notice) -> None:
        self._enter(current, "done")

    def _on_deactivated(self, current: Relocation, message: Reply) -> None:
        if waiting := self._still_waiting(current, message.by):
            self._note(replace(current, waiting_for=waiting))
            return
        # Only now has the sender processed all tuples in flight to it.
        self._enter(current, "moving", [current.receiver])
        send = SendPartitions(current.id, current.partitions, current.receiver)
        self._send([current.sender], send)

    def _on_received(self, current: Relocation, message: Received) -> None:
        moved, discarded, recomputed = message.moved, message.discarded, message.recomputed
        current = replace(current, moved=moved, discarded=discarded, recomputed=recomputed)
        self._reactivate(current, "reactivating", current.receiver)

    def _reactivate(self, current: Relocation, phase: Phase, owner: str) -> None:
        self._enter(current, phase, self._splits)
        self._send(self._splits, ReactivatePartitions(current.id, current.partitions, owner))

    def _cancel(self, current: Relocation) -> None:
        """Cancel a relocation if possible: the sender has all of its state, and keeps it."""
        match current.phase:
            case "reporting" | "computing":
                self._enter(current, "cancelled")
            case "duplicating":
                pair = (current.sender, current.receiver)
                self._enter(current, "stopping", pair)
                head = (current.id, current.partitions)
                self._send(self._splits, DuplicationOrder("stop-duplication", *head, *pair))
            case "deactivating":
                self._reactivate(current, "resuming", current.sender)
            case _:
                pass  # past the point of no return: it completes

    def _on_reactivated(self, current: Relocation, message: Reply) -> None:
        self._advance(current, message.by, "done")

    def _on_cancelled(self, current: Relocation, message: Reply) -> None:
        self._advance(current, message.by, "cancelled")

    def _advance(self, current: Relocation, by: str, end_phase: Phase) -> None:
        waiting = self._still_waiting(current, by)
        self._enter(current, current.phase if waiting else end_phase, waiting)

    def _still_waiting(self, current: Relocation, by: str) -> tuple[str, ...]:
        return tuple(address for address in current.waiting_for if address != by)

    def _enter(self, current: Relocation, phase: Phase, waiting_for: Sequence[str] = ()) -> None:
        self._note(replace(current, phase=phase, waiting_for=tuple(waiting_for)))

    def _note(self, relocation: Relocation) -> None:
        self.relocations[relocation.id] = relocation
        for number in sorted(self.relocations)[:-_MAX_ENDED]:
            # Refused requests must not evict the current relocation.
            if number != self._last:
                del self.relocations[number]

    def _send(self, receivers: Sequence[str], message: Message) -> None:
        self.outbox += [(receiver, message) for receiver in receivers]
