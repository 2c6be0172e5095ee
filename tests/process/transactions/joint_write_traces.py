"""What joint writes really do, as steps of the model of them, and whether it can take those.

Every call that reaches a store or the log is noted, with when it began and was answered.
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
"""When a call that failed was answered."""


class Step(NamedTuple):
    """What a call did, in the words of the model, and when: its effect was some time in between.

    A call that failed may have had its effect at any time since, or none: it is not `certain`.
    """

    what: str
    began: int
    ended: int
    certain: bool = True


@dataclass
class Trace:
    """What was done to one object."""

    id: str
    steps: list[Step] = field(default_factory=list)
    intents: list[str] = field(default_factory=list)
    staged: set[str] = field(default_factory=set)
    singles: list[int] = field(default_factory=list)
    resolving: list[tuple[str, str, Step]] = field(default_factory=list)
    """What was done about joint writes, by their intents: of this object, or of another one."""
    ticks: Iterator[int] = field(default_factory=count)

    def all_steps(self) -> tuple[Step, ...]:
        """Return all steps, now that the intents of this object are known."""
        about = [
            step._replace(what=what.format(f"J{self.intents.index(intent)}"))
            for intent, what, step in self.resolving
            if intent in self.intents
        ]
        return tuple(sorted([*self.steps, *about], key=lambda step: step.ended))


@dataclass
class Note:
    """Notes what one call did, once it is answered, or has failed."""

    trace: Trace
    began: int
    certain: bool = True

    def joint(self, intent: str, what: str) -> None:
        """Note a step of a joint write."""
        intents = self.trace.intents
        if intent not in intents:
            intents.append(intent)
        self.trace.steps.append(self._step(what.format(f"J{intents.index(intent)}")))

    def resolving(self, intent: str, what: str) -> None:
        """Note a resolving step of any replica, for a joint write of this object or of another one.

        Which it is may be known later: a reader of an intent may be answered before its writer.
        """
        self.trace.resolving.append((intent, what, self._step(what)))

    def single(self, at: int) -> None:
        """Note a write to one record."""
        self.trace.steps.append(self._step(f"single {at}"))
        self.trace.singles.append(at)

    def _step(self, what: str) -> Step:
        ended = next(self.trace.ticks) if self.certain else NEVER
        return Step(what, self.began, ended, self.certain)


class Recorder:
    """Notes the calls of services.

    Args:
        services: The replicas.
        patched: Puts everything back.
    """

    def __init__(self, services: Sequence[Service], patched: pytest.MonkeyPatch) -> None:
        self.trace = Trace("")
        for each in services:
            for at, name in enumerate(SYSTEMS):
                store = each.mediator.systems.get(name).store
                self._wrap(patched, store, "lock", partial(self._locked, at))
                self._wrap(patched, store, "write", partial(self._written, at))
                self._wrap(patched, store, "unlock", partial(self._unlocked, at))
                self._wrap(patched, store, "fence", partial(self._fenced, at))
            log = each.mediator.transactions.log
            self._wrap(patched, log, "begin", self._on_begin)
            self._wrap(patched, log, "commit", self._committed)
            self._wrap(patched, log, "abort", self._aborted)
            self._wrap(patched, log, "refuse", self._refused)

    def _wrap(
        self, patched: pytest.MonkeyPatch, owner: Any, name: str, record: Callable[..., None]
    ) -> None:
        send: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def recorded(*args: Any, **more: Any) -> Any:
            note = Note(self.trace, next(self.trace.ticks))
            try:
                result = await send(*args, **more)
            except BaseException:
                note.certain = False
                record(note, None, *args, **more)
                raise
            record(note, result, *args, **more)
            return result

        patched.setattr(owner, name, recorded)

    def _locked(
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

    def _unlocked(
        self, at: int, note: Note, _: None, keys: Sequence[RecordKey], intent: str, **_more: bool
    ) -> None:
        if any(id_ == note.trace.id for _, id_ in keys):
            note.resolving(intent, f"{{}}'s intent at {at} goes")

    def _fenced(
        self, at: int, note: Note, _: object, _fragment: Fragment, id_: str, token: str
    ) -> None:
        if id_ == note.trace.id:
            note.resolving(token, f"{{}} is fenced at {at}")

    def _written(
        self,
        at: int,
        note: Note,
        results: Sequence[WriteResult] | None,
        calls: Sequence[Write],
        *_: str,
    ) -> None:
        known: Sequence[WriteResult | None] = results or [None] * len(calls)
        for call, result in zip(calls, known, strict=True):
            if result is None and not call.intent:
                continue  # the client that writes records one by one has got no answer
            if call.id == note.trace.id and (result is None or result.status is Status.APPLIED):
                if call.intent:
                    note.joint(call.intent, f"{{}} is applied at {at}")
                else:
                    note.single(at)

    def _on_begin(self, note: Note, result: bool | None, entry: Any, lease_s: float) -> None:
        if not any(id_ == note.trace.id for _, id_ in entry.records):
            return
        if entry.state is TransactionState.STAGED:
            note.trace.staged.add(entry.intent)
        if lease_s:
            note.joint(entry.intent, "{} is logged")
        elif result is not False:  # by one that has met its intent, and leaves it no time
            note.resolving(entry.intent, "{} is logged again")

    def _committed(self, note: Note, done: bool | None, intent: str, *_: Any) -> None:
        note.resolving(intent, "{} is decided" if done is False else "{} is committed")

    def _aborted(self, note: Note, _done: bool | None, intent: str) -> None:
        note.resolving(intent, "{} is aborted")

    def _refused(self, note: Note, _: None, intents: Sequence[str], *_more: float) -> None:
        for intent in intents:
            note.resolving(intent, "{} is refused")


def replay(trace: Trace, *, whole: bool = False) -> State:
    """Take the steps of a trace in the model; fails where it cannot, or may not.

    Calls that were under way at the same time may have taken effect in any order. At the end of a
    `whole` trace no intent is left.
    """
    joint = tuple((0, 1) for _ in trace.intents)
    blind = frozenset(map(trace.intents.index, trace.staged))
    world = World(joint, tuple(trace.singles), crashes=len(joint), blind=blind)
    search = Replay(world, trace.all_steps(), whole)
    state = search.order(initial_state(world))
    assert state is not None, (search.refused, search.steps)
    return state


@dataclass
class Replay:
    """Looks for an order of steps that the model allows.

    Many orders come to the same state with the same steps left, and more to the same state. Each of
    those is looked at once: else the search for the order of a dozen calls at the same time would
    take minutes.

    Attributes:
        world: What there is.
        steps: What was done, in the order of the answers.
        whole: Whether no intent may be left at the end.
        refused: Steps that could not be taken, and how many were left at least.
    """

    world: World
    steps: tuple[Step, ...]
    whole: bool
    refused: dict[str, int] = field(default_factory=dict)
    _after: dict[tuple[State, str], State | None] = field(default_factory=dict)

    def order(self, state: State) -> State | None:
        """Take all steps, in an order that the model allows; None: there is no such order.

        Those that are left are known as bits: a step may be the next one if it began before the
        first answer among them.
        """
        certain = sum(1 << at for at, step in enumerate(self.steps) if step.certain)
        pending, seen = [(state, (1 << len(self.steps)) - 1)], set()
        while pending:
            state, left = at = pending.pop()
            if not left & certain and self._may_end(state):
                return state
            if left and at not in seen:
                seen.add(at)
                pending += reversed(list(self._following(state, left)))
        return None

    def _following(self, state: State, left: int) -> Iterator[tuple[State, int]]:
        """Yield the states after each step that may be the next, and what is left then.

        Of steps that are alike, only after the one that was answered first: they can change places.
        """
        numbers = [at for at in range(left.bit_length()) if left >> at & 1]
        first_answer, tried = self.steps[numbers[0]].ended, set[str]()
        for at in numbers:
            step = self.steps[at]
            if step.began >= first_answer or step.what in tried:
                continue
            tried.add(step.what)
            after = self._taken(state, step.what, len(numbers))
            # One that is not certain need not be taken: without an effect it is as if it were not.
            if after is not None and (step.certain or after != state):
                yield after, left & ~(1 << at)

    def _may_end(self, state: State) -> bool:
        return not self.whole or all(record.intent == FREE for record in state.records)

    def _taken(self, state: State, what: str, left: int) -> State | None:
        if (state, what) not in self._after:
            self._after[state, what] = self._allowed(state, what)
        after = self._after[state, what]
        if after is None:
            self.refused[what] = min(left, self.refused.get(what, left))
        return after

    def _allowed(self, state: State, what: str) -> State | None:
        if what.startswith("single"):
            what = f"S{len(self.world.joint) + state.singles} writes record {what[-1]}"
        move = _taken(self.world, state, what)
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
"""Steps that are not observable, which come before some others."""

MOST_UNSEEN = 3
"""So many of them come before one that is."""


def _taken(world: World, state: State, what: str) -> Move | None:
    if what.endswith("is refused"):
        return _refused(world, state, what)
    if what.endswith("is decided"):
        return _decided(world, state, what)
    for each in _reached(world, state, what):
        if move := next((move for move in moves(world, each) if move.what == what), None):
            return move
    return Move(what, state) if _says_nothing(state, what) else None


def _reached(world: World, state: State, what: str) -> Iterator[State]:
    """Yield the states that unseen steps of the write lead to, which a step is about."""
    number = what.partition(" ")[0].partition("'")[0]
    unseen = {f"{number} {step}" for step in UNSEEN}
    states = [state]
    for _ in range(MOST_UNSEEN + 1):
        yield from states
        found = (move for each in states for move in moves(world, each))
        states = [move.state for move in found if move.what in unseen]


def _refused(world: World, state: State, what: str) -> Move | None:
    """Refuse a write: that aborts a write without a log entry, and changes no logged one."""
    if state.log[int(what[1 : what.index(" ")])] is not Log.UNKNOWN:
        return Move(what, state)
    return _taken(world, state, what.replace("refused", "aborted"))


def _decided(world: World, state: State, what: str) -> Move | None:
    """Commit a write in vain: others have committed it, or aborted it."""
    number, undecided = int(what[1 : what.index(" ")]), (Log.UNKNOWN, Log.PREPARING, Log.STAGED)
    for each in _reached(world, state, what):
        if each.log[number] not in undecided:
            return _taken(world, each, what.replace("decided", "committed")) or Move(what, each)
    return None


def _says_nothing(state: State, what: str) -> bool:
    """Whether a call had nothing to do: the write is aborted, or its intent removed, already.

    Nor has an intent that is set late, once its record is fenced: the fence has refused it.
    """
    number = int(what[1 : what.index("'" if "'" in what else " ")])
    if what.endswith("goes"):
        return state.records[int(what.split()[-2])].intent != number
    if " locks " in what:
        return state.coordinators[number].locks[int(what[-1])] is Sent.REFUSED
    return what.endswith("aborted") or " fenced " in what
