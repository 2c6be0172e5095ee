"""Recorded calls of joint writes, as steps of their model, and the check that it allows them.

Every call that reaches a store or the log is recorded, with the times of its start and answer.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from mediator.stores.port import Fragment, RecordKey, RecordState, Status, Write, WriteResult
from mediator.transactions.log import State as TransactionState
from tests.process.service import Service
from tests.properties.transactions.joint_write_model import initial_state, moves
from tests.properties.transactions.joint_write_states import FREE, Log, Move, Sent, State, World

__all__ = ["NEVER", "Note", "Recorder", "Step", "Trace", "replay"]

SYSTEMS = ("postgres", "redis")
"""The systems of the records, the anchor's first."""

NEVER = sys.maxsize
"""The time of the answer of a failed call."""


class Step(NamedTuple):
    """A call as a labelled step of the model; it took effect between its start and end.

    A failed call can have taken effect at any time since, or never: it is not `certain`.
    """

    label: str
    start: int
    end: int
    certain: bool = True


@dataclass
class Trace:
    """The steps on one object."""

    id: str
    steps: list[Step] = field(default_factory=list)
    intents: list[str] = field(default_factory=list)
    staged: set[str] = field(default_factory=set)
    singles: list[int] = field(default_factory=list)
    resolving: list[tuple[str, str, Step]] = field(default_factory=list)
    """Steps of resolvers by their intents, of joint writes of this object or of others."""
    ticks: Iterator[int] = field(default_factory=count)

    def all_steps(self) -> tuple[Step, ...]:
        """Return all steps, once the intents of this object are known."""
        resolving_steps = [
            step._replace(label=label.format(f"J{self.intents.index(intent)}"))
            for intent, label, step in self.resolving
            if intent in self.intents
        ]
        return tuple(sorted([*self.steps, *resolving_steps], key=lambda step: step.end))


@dataclass
class Note:
    """Records the steps of one call, after its answer or failure."""

    trace: Trace
    start: int
    certain: bool = True

    def joint(self, intent: str, label: str) -> None:
        """Record a step of a joint write."""
        intents = self.trace.intents
        if intent not in intents:
            intents.append(intent)
        self.trace.steps.append(self._step(label.format(f"J{intents.index(intent)}")))

    def resolving(self, intent: str, label: str) -> None:
        """Record a resolving step of any replica, for a joint write of this object or another one.

        Which one is known only later: a reader of an intent can be answered before its writer.
        """
        self.trace.resolving.append((intent, label, self._step(label)))

    def single(self, at: int) -> None:
        """Record a write to one record."""
        self.trace.steps.append(self._step(f"single {at}"))
        self.trace.singles.append(at)

    def _step(self, label: str) -> Step:
        end = next(self.trace.ticks) if self.certain else NEVER
        return Step(label, self.start, end, self.certain)


class Recorder:
    """Records the calls of services.

    Args:
        services: The replicas.
        patched: Reverts the patches.
    """

    def __init__(self, services: Sequence[Service], patched: pytest.MonkeyPatch) -> None:
        self.trace = Trace("")
        for replica in services:
            for at, name in enumerate(SYSTEMS):
                store = replica.mediator.systems.get(name).store
                self._wrap(patched, store, "lock", partial(self._record_lock, at))
                self._wrap(patched, store, "write", partial(self._record_write, at))
                self._wrap(patched, store, "unlock", partial(self._record_unlock, at))
                self._wrap(patched, store, "fence", partial(self._record_fence, at))
            log = replica.mediator.transactions.log
            self._wrap(patched, log, "begin", self._record_begin)
            self._wrap(patched, log, "commit", self._record_commit)
            self._wrap(patched, log, "abort", self._record_abort)
            self._wrap(patched, log, "refuse", self._record_refusal)

    def _wrap(
        self, patched: pytest.MonkeyPatch, owner: Any, name: str, record: Callable[..., None]
    ) -> None:
        send: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def send_and_record(*args: Any, **more: Any) -> Any:
            note = Note(self.trace, next(self.trace.ticks))
            try:
                result = await send(*args, **more)
            except BaseException:
                note.certain = False
                record(note, None, *args, **more)
                raise
            record(note, result, *args, **more)
            return result

        patched.setattr(owner, name, send_and_record)

    def _record_lock(
        self,
        at: int,
        note: Note,
        _: Sequence[RecordState] | None,
        keys: Sequence[RecordKey],
        intent: str,
        *_redo: str,
    ) -> None:
        for _fragment, id_ in keys:
            if id_ == note.trace.id:
                note.joint(intent, f"{{}} locks record {at}")

    def _record_unlock(
        self, at: int, note: Note, _: None, keys: Sequence[RecordKey], intent: str, **_more: bool
    ) -> None:
        if any(id_ == note.trace.id for _, id_ in keys):
            note.resolving(intent, f"{{}}'s intent at {at} goes")

    def _record_fence(
        self, at: int, note: Note, _: object, _fragment: Fragment, id_: str, token: str
    ) -> None:
        if id_ == note.trace.id:
            note.resolving(token, f"{{}} is fenced at {at}")

    def _record_write(
        self,
        at: int,
        note: Note,
        results: Sequence[WriteResult] | None,
        calls: Sequence[Write],
        *_: str,
    ) -> None:
        outcomes: Sequence[WriteResult | None] = results or [None] * len(calls)
        for call, result in zip(calls, outcomes, strict=True):
            if result is None and not call.intent:
                continue  # a single write of the client without an answer
            if call.id == note.trace.id and (result is None or result.status is Status.APPLIED):
                if call.intent:
                    note.joint(call.intent, f"{{}} is applied at {at}")
                else:
                    note.single(at)

    def _record_begin(self, note: Note, result: bool | None, entry: Any, lease_s: float) -> None:
        if not any(id_ == note.trace.id for _, id_ in entry.records):
            return
        if entry.state is TransactionState.STAGED:
            note.trace.staged.add(entry.intent)
        if lease_s:
            note.joint(entry.intent, "{} is logged")
        elif result is not False:  # by a participant that has met its intent, without a lease
            note.resolving(entry.intent, "{} is logged again")

    def _record_commit(self, note: Note, succeeded: bool | None, intent: str, *_: Any) -> None:
        note.resolving(intent, "{} is decided" if succeeded is False else "{} is committed")

    def _record_abort(self, note: Note, _succeeded: bool | None, intent: str) -> None:
        note.resolving(intent, "{} is aborted")

    def _record_refusal(self, note: Note, _: None, intents: Sequence[str], *_more: float) -> None:
        for intent in intents:
            note.resolving(intent, "{} is refused")


def replay(trace: Trace, *, complete: bool = False) -> State:
    """Replay the steps of a trace in the model; fail if the model does not allow them.

    Calls that were under way at the same time can have taken effect in any order. At the end of a
    `complete` trace no intent is left.
    """
    joint = tuple((0, 1) for _ in trace.intents)
    blind = frozenset(map(trace.intents.index, trace.staged))
    world = World(joint, tuple(trace.singles), crashes=len(joint), blind=blind)
    search = Replay(world, trace.all_steps(), complete)
    state = search.order(initial_state(world))
    assert state is not None, (search.refused, search.steps)
    return state


@dataclass
class Replay:
    """Searches for an order of steps that the model allows.

    Many orders lead to the same state with the same remaining steps. Each such pair is visited
    once: else the search for the order of a dozen concurrent calls would take minutes.

    Attributes:
        world: The participants.
        steps: The steps, in the order of the answers.
        complete: Whether no intent may be left at the end.
        refused: Steps that could not be taken, and the least number that remained then.
    """

    world: World
    steps: tuple[Step, ...]
    complete: bool
    refused: dict[str, int] = field(default_factory=dict)
    _after: dict[tuple[State, str], State | None] = field(default_factory=dict)

    def order(self, state: State) -> State | None:
        """Take all steps, in an order that the model allows; None: there is no such order.

        The remaining steps are a bit set: a step can be next if it started before the first answer
        among them.
        """
        certain = sum(1 << at for at, step in enumerate(self.steps) if step.certain)
        pending, seen = [(state, (1 << len(self.steps)) - 1)], set()
        while pending:
            state, remaining = at = pending.pop()
            if not remaining & certain and self._may_end(state):
                return state
            if remaining and at not in seen:
                seen.add(at)
                pending += reversed(list(self._successors(state, remaining)))
        return None

    def _successors(self, state: State, remaining: int) -> Iterator[tuple[State, int]]:
        """Yield the state after each step that can be next, and the remaining steps.

        Of equal steps only the one that was answered first is taken: they are interchangeable.
        """
        numbers = [at for at in range(remaining.bit_length()) if remaining >> at & 1]
        first_answer, tried_labels = self.steps[numbers[0]].end, set[str]()
        for at in numbers:
            step = self.steps[at]
            if step.start >= first_answer or step.label in tried_labels:
                continue
            tried_labels.add(step.label)
            after = self._take(state, step.label, len(numbers))
            # An uncertain step without an effect need not be taken.
            if after is not None and (step.certain or after != state):
                yield after, remaining & ~(1 << at)

    def _may_end(self, state: State) -> bool:
        return not self.complete or all(record.intent == FREE for record in state.records)

    def _take(self, state: State, label: str, remaining: int) -> State | None:
        if (state, label) not in self._after:
            self._after[state, label] = self._state_after(state, label)
        after = self._after[state, label]
        if after is None:
            self.refused[label] = min(remaining, self.refused.get(label, remaining))
        return after

    def _state_after(self, state: State, label: str) -> State | None:
        if label.startswith("single"):
            label = f"S{len(self.world.joint) + state.singles} writes record {label[-1]}"
        move = _find_move(self.world, state, label)
        return None if move is None or move.broken else move.state


UNSEEN = (
    "begins",
    "waits for record 1",
    "gives up",
    "applies",
    "acknowledges",
    "is finished",
    "is seen at 0",
    "is seen at 1",
    "is forgotten",
)
"""Steps that are not observable and precede some others."""

MAX_UNSEEN = 3
"""The maximum number of such steps before an observable one."""


def _find_move(world: World, state: State, label: str) -> Move | None:
    if label.endswith("is refused"):
        return _refusal_move(world, state, label)
    if label.endswith("is decided"):
        return _late_commit_move(world, state, label)
    for reachable in _reachable_states(world, state, label):
        if move := next((move for move in moves(world, reachable) if move.label == label), None):
            return move
    return Move(label, state) if _has_no_effect(state, label) else None


def _reachable_states(world: World, state: State, label: str) -> Iterator[State]:
    """Yield the states that unseen steps of the step's write lead to."""
    number = label.partition(" ")[0].partition("'")[0]
    unseen = {f"{number} {step}" for step in UNSEEN}
    states = [state]
    for _ in range(MAX_UNSEEN + 1):
        yield from states
        next_moves = (move for reached in states for move in moves(world, reached))
        states = [move.state for move in next_moves if move.label in unseen]


def _refusal_move(world: World, state: State, label: str) -> Move | None:
    """Refuse a write: this aborts a write without a log entry, and changes no logged one."""
    if state.log[int(label[1 : label.index(" ")])] is not Log.UNKNOWN:
        return Move(label, state)
    return _find_move(world, state, label.replace("refused", "aborted"))


def _late_commit_move(world: World, state: State, label: str) -> Move | None:
    """Commit a write in vain: others have committed or aborted it."""
    number, undecided = int(label[1 : label.index(" ")]), (Log.UNKNOWN, Log.PREPARING, Log.STAGED)
    for reached in _reachable_states(world, state, label):
        if reached.log[number] not in undecided:
            return _find_move(world, reached, label.replace("decided", "committed")) or Move(
                label, reached
            )
    return None


def _has_no_effect(state: State, label: str) -> bool:
    """Whether a call has no effect: the write is aborted already, or its intent is removed.

    An intent that is set after its record was fenced has none either: the fence refuses it.
    """
    number = int(label[1 : label.index("'" if "'" in label else " ")])
    if label.endswith("goes"):
        return state.records[int(label.split()[-2])].intent != number
    if " locks " in label:
        return state.coordinators[number].locks[int(label[-1])] is Sent.REFUSED
    return label.endswith("aborted") or " fenced " in label
