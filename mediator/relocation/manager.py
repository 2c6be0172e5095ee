"""The distribution manager: one relocation at a time, step by step, as an explicit state machine.

| phase | waits for | then |
|---|---|---|
| `reporting` | `Reported` of all workers | chooses who and how much |
| `computing` | `PartitionsToMove` | chooses the protocol, if it may |
| `duplicating` | `all-old-purged` of the sender | `delete-partitions`: no return |
| `deleting` | `deleted` of the sender | ends |
| `deactivating` | `deactivated` of the sender and of all splits | `SendPartitions`: no return |
| `moving` | `Received` of the receiver | `ReactivatePartitions` |
| `reactivating` | `reactivated` of all splits | ends |
| `stopping` | `stopped` of both workers | ends, given up |
| `resuming` | `reactivated` of all splits, to the sender | ends, given up |

A message that the phase does not wait for is a repetition, or was overtaken by `Cancel`.
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
_KEPT: Final = 100
"""Relocations that are known after their end."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A relocation, and how far it is.

    Attributes:
        strategy: What was asked for; `chosen` is what is done.
        sender: Empty until it is known; and so is the receiver.
        amount: Rows that are to be moved; 0 until it is known.
        waiting_for: Addresses that have not answered in this phase.
        held: Rows of each worker, at the beginning.
        states: The state ids of each worker.
        moved: Rows that were shipped and had a state at the receiver.
        discarded: Rows that had none.
        recomputed: Rows that the receiver has made instead.
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
    """Decides, and leads both protocols; it sees no tuple.

    Attributes:
        relocations: By id, the present one and the last ones.
    """

    def __init__(self, layout: Layout) -> None:
        self._workers = list(layout.workers)
        self._splits = [split_address(name) for name in layout.attributes]
        self._last = 0
        self.relocations: dict[int, Relocation] = {}
        self.outbox: Outbox = []
        self._steps: Mapping[tuple[str, Phase], Callable[[Relocation, Any], None]] = {
            ("reported", "reporting"): self._reported,
            ("partitions-to-move", "computing"): self._computed,
            ("all-old-purged", "duplicating"): self._delete,
            ("deleted", "deleting"): self._deleted,
            ("deactivated", "deactivating"): self._deactivated,
            ("received", "moving"): self._received,
            ("reactivated", "reactivating"): self._reactivated,
            ("reactivated", "resuming"): self._given_up,
            ("stopped", "stopping"): self._given_up,
        }

    @property
    def present(self) -> Relocation | None:
        """The relocation that goes on; None: there is none."""
        last = self.relocations.get(self._last)
        return None if last is None or last.phase in ENDED else last

    def handle(self, message: Message) -> None:
        if isinstance(message, Relocate):
            self._begin(message)
            return
        present = self.present
        if present is None or getattr(message, "relocation", 0) != present.id:
            return
        if isinstance(message, Cancel):
            self._cancel(present)
        elif (step := self._steps.get((message.kind, present.phase))) is not None:
            step(present, message)

    def record(self) -> dict[str, Any]:
        """Return what has to survive this process."""
        return {
            "last": self._last,
            **{f"relocation/{at}": asdict(each) for at, each in self.relocations.items()},
        }

    def restore(self, record: Mapping[str, Any]) -> None:
        self._last = record["last"]
        for name, fields in record.items():
            if name.startswith("relocation/"):
                states = {at: tuple(ids) for at, ids in fields["states"].items()}
                lists = {name: tuple(fields[name]) for name in ("partitions", "waiting_for")}
                relocation = Relocation(**{**fields, **lists, "states": states})
                self.relocations[relocation.id] = relocation

    def _begin(self, message: Relocate) -> None:
        busy = self.present is not None
        known = {message.sender, message.receiver} <= {"", *self._workers}
        named_twice = message.sender != "" and message.sender == message.receiver
        refused = busy or not known or named_twice or len(self._workers) == 1
        # The last id stays that of the relocation that goes on, which a refusal must not hide.
        number = max(self.relocations, default=0) + 1
        requested = (message.strategy, message.sender, message.receiver, message.amount)
        if refused:
            self._note(Relocation(number, requested[0], "refused", *requested[1:]))
            self._last = self._last if busy else number
            return
        self._last = number
        self._note(Relocation(number, requested[0], "reporting", *requested[1:]))
        self._enter(self.relocations[number], "reporting", self._workers)
        self._send(self._workers, Notice("report", number))

    def _reported(self, present: Relocation, message: Reported) -> None:
        held = {**present.held, message.worker: message.held}
        states = {**present.states, message.worker: message.states}
        present = replace(present, held=held, states=states)
        if left := self._left(present, message.worker):
            self._note(replace(present, waiting_for=left))
            return
        pair = choose_pair(held, present.sender, present.receiver)
        amount = present.amount or pair.amount
        present = replace(present, sender=pair.sender, receiver=pair.receiver, amount=amount)
        if amount <= 0:
            self._enter(present, "nothing-to-move")
            return
        self._enter(present, "computing", [pair.sender])
        self._send([pair.sender], ComputePartitionsToMove(present.id, amount))

    def _computed(self, present: Relocation, message: PartitionsToMove) -> None:
        present = replace(present, partitions=message.partitions)
        if not message.partitions:
            self._enter(present, "nothing-to-move")
            return
        chosen = present.strategy
        if chosen == "auto":
            states = present.states[present.receiver]
            chosen = choose_strategy(message.rows, states, message.repeated)
        head = (present.id, message.partitions, present.sender)
        if chosen == "ptlb":
            self._enter(replace(present, chosen="ptlb"), "duplicating", [present.sender])
            self._send(
                self._splits, DuplicationOrder("duplicate-partitions", *head, present.receiver)
            )
        else:
            waiting = [present.sender, *self._splits]
            self._enter(replace(present, chosen="mslb"), "deactivating", waiting)
            self._send(self._splits, DeactivatePartitions(*head))

    def _delete(self, present: Relocation, _: Notice) -> None:
        self._enter(present, "deleting", [present.sender])
        head = (present.id, present.partitions, present.sender, present.receiver)
        self._send(self._splits, DuplicationOrder("delete-partitions", *head))

    def _deleted(self, present: Relocation, _: Notice) -> None:
        self._enter(present, "done")

    def _deactivated(self, present: Relocation, message: Reply) -> None:
        if left := self._left(present, message.by):
            self._note(replace(present, waiting_for=left))
            return
        # Only now has the sender processed all that was in flight to it.
        self._enter(present, "moving", [present.receiver])
        send = SendPartitions(present.id, present.partitions, present.receiver)
        self._send([present.sender], send)

    def _received(self, present: Relocation, message: Received) -> None:
        moved, discarded, recomputed = message.moved, message.discarded, message.recomputed
        present = replace(present, moved=moved, discarded=discarded, recomputed=recomputed)
        self._reactivate(present, "reactivating", present.receiver)

    def _reactivate(self, present: Relocation, phase: Phase, owner: str) -> None:
        self._enter(present, phase, self._splits)
        self._send(self._splits, ReactivatePartitions(present.id, present.partitions, owner))

    def _cancel(self, present: Relocation) -> None:
        """Give up what can be given up: the sender has all of its state, and keeps it."""
        match present.phase:
            case "reporting" | "computing":
                self._enter(present, "cancelled")
            case "duplicating":
                pair = (present.sender, present.receiver)
                self._enter(present, "stopping", pair)
                head = (present.id, present.partitions)
                self._send(self._splits, DuplicationOrder("stop-duplication", *head, *pair))
            case "deactivating":
                self._reactivate(present, "resuming", present.sender)
            case _:
                pass  # past the point of no return: it is completed

    def _reactivated(self, present: Relocation, message: Reply) -> None:
        self._answered(present, message.by, "done")

    def _given_up(self, present: Relocation, message: Reply) -> None:
        self._answered(present, message.by, "cancelled")

    def _answered(self, present: Relocation, by: str, ended: Phase) -> None:
        left = self._left(present, by)
        self._enter(present, present.phase if left else ended, left)

    def _left(self, present: Relocation, by: str) -> tuple[str, ...]:
        return tuple(each for each in present.waiting_for if each != by)

    def _enter(self, present: Relocation, phase: Phase, waiting_for: Sequence[str] = ()) -> None:
        self._note(replace(present, phase=phase, waiting_for=tuple(waiting_for)))

    def _note(self, relocation: Relocation) -> None:
        self.relocations[relocation.id] = relocation
        for number in sorted(self.relocations)[:-_KEPT]:
            # Requests that were refused do not make the present one forgotten.
            if number != self._last:
                del self.relocations[number]

    def _send(self, receivers: Sequence[str], message: Message) -> None:
        self.outbox += [(receiver, message) for receiver in receivers]
