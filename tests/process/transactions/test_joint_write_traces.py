"""What joint writes really do, held against the model of them, call by call.

Every call that reaches a store or the log is noted, with when it began and was answered, while
coordinators stall and another replica writes. What was noted must be steps that the model
(`tests/properties/transactions/joint_write_model.py`) can take, in an order that those times allow,
and none of them may break a promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from mediator.stores.port import RecordKey, RecordState, Status, Write, WriteResult
from tests.process.service import Service, unique
from tests.process.transactions.mortal import FATE, make_mortal
from tests.process.transactions.open_writes import expire, let_overdue
from tests.process.transactions.test_joint_interleavings import (
    OLD,
    VICTIMS,
    Stall,
    other,
    pairs,
    write,
    write_of,
)
from tests.properties.transactions.joint_write_model import beginning, moves
from tests.properties.transactions.joint_write_states import Move, State, World

__all__ = ["other", "pairs"]

SYSTEMS = ("postgres", "redis")
"""The systems of the records, the anchor's first."""


class Step(NamedTuple):
    """What a call did, in the words of the model, and when: its effect was some time in between."""

    what: str
    began: int
    ended: int


@dataclass
class Trace:
    """What was done to one object."""

    id: str
    steps: list[Step] = field(default_factory=list)
    intents: list[str] = field(default_factory=list)
    singles: list[int] = field(default_factory=list)
    ticks: Iterator[int] = field(default_factory=count)


@dataclass
class Note:
    """Notes what one call did, once it is answered."""

    trace: Trace
    began: int

    def joint(self, intent: str, what: str) -> None:
        """Note a step of a joint write."""
        intents = self.trace.intents
        if intent not in intents:
            intents.append(intent)
        self._step(what.format(f"J{intents.index(intent)}"))

    def known(self, intent: str, what: str) -> None:
        """Note what somebody did about a joint write of this object, if it is one."""
        if intent in self.trace.intents:
            self.joint(intent, what)

    def single(self, at: int) -> None:
        """Note a write to one record."""
        self._step(f"single {at}")
        self.trace.singles.append(at)

    def _step(self, what: str) -> None:
        self.trace.steps.append(Step(what, self.began, next(self.trace.ticks)))


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
            log = each.mediator.transactions.log
            self._wrap(patched, log, "begin", self._begun)
            self._wrap(patched, log, "commit", self._committed)
            self._wrap(patched, log, "abort", self._aborted)
            self._wrap(patched, log, "refuse", self._refused)

    def _wrap(
        self, patched: pytest.MonkeyPatch, owner: Any, name: str, tell: Callable[..., None]
    ) -> None:
        send: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def noted(*args: Any, **more: Any) -> Any:
            note = Note(self.trace, next(self.trace.ticks))
            result = await send(*args, **more)
            tell(note, result, *args, **more)
            return result

        patched.setattr(owner, name, noted)

    def _locked(
        self, at: int, note: Note, _: Sequence[RecordState], keys: Sequence[RecordKey], intent: str
    ) -> None:
        for _fragment, id_ in keys:
            if id_ == note.trace.id:
                note.joint(intent, f"{{}} locks record {at}")

    def _unlocked(
        self, at: int, note: Note, _: None, keys: Sequence[RecordKey], intent: str, **_more: bool
    ) -> None:
        if any(id_ == note.trace.id for _, id_ in keys):
            note.known(intent, f"{{}}'s intent at {at} goes")

    def _written(
        self, at: int, note: Note, results: Sequence[WriteResult], calls: Sequence[Write], *_: str
    ) -> None:
        for call, result in zip(calls, results, strict=True):
            if call.id == note.trace.id and result.status is Status.APPLIED:
                if call.intent:
                    note.joint(call.intent, f"{{}} is applied at {at}")
                else:
                    note.single(at)

    def _begun(self, note: Note, _begun: bool, entry: Any, *_: float) -> None:
        if any(id_ == note.trace.id for _, id_ in entry.records):
            note.joint(entry.intent, "{} is logged")

    def _committed(self, note: Note, _done: bool, intent: str, *_: Any) -> None:
        note.known(intent, "{} is committed")

    def _aborted(self, note: Note, _done: bool, intent: str) -> None:
        note.known(intent, "{} is aborted")

    def _refused(self, note: Note, _: None, intents: Sequence[str], *_more: float) -> None:
        for intent in intents:
            note.known(intent, "{} is aborted")


def replay(trace: Trace) -> State:
    """Take the steps of a trace in the model; fails where it cannot, or may not.

    Calls that were under way at the same time may have taken effect in any order.
    """
    joint = tuple((0, 1) for _ in trace.intents)
    world = World(joint, tuple(trace.singles), crashes=len(joint))
    replay = Replay(world)
    state = replay.order(beginning(world), tuple(trace.steps))
    assert state is not None, (replay.refused, trace.steps)
    return state


@dataclass
class Replay:
    """Looks for an order of steps that the model allows.

    Many orders come to the same state with the same steps left. Each of those is looked at once:
    else the search for the order of a dozen calls at the same time would hold the event loop for
    minutes, and the replicas that run on it would lose their leases.

    Attributes:
        world: What there is.
        refused: Steps that could not be taken, and when.
    """

    world: World
    refused: list[str] = field(default_factory=list)
    _vain: set[tuple[State, tuple[Step, ...]]] = field(default_factory=set)

    def order(self, state: State, left: tuple[Step, ...]) -> State | None:
        """Take what is left, in an order that the model allows; None: there is no such order."""
        if not left:
            return state
        if (state, left) in self._vain:
            return None
        first_answer = min(step.ended for step in left)
        for at, step in enumerate(left):
            after = self._after(state, step, len(left)) if step.began < first_answer else None
            if after and (last := self.order(after, (*left[:at], *left[at + 1 :]))):
                return last
        self._vain.add((state, left))
        return None

    def _after(self, state: State, step: Step, left: int) -> State | None:
        what = step.what
        if what.startswith("single"):
            what = f"S{len(self.world.joint) + state.singles} writes record {what[-1]}"
        move = _taken(self.world, state, what)
        if move is None or move.broken:
            self.refused.append(f"{what}, {left} before the end")
            return None
        return move.state


def test_an_order_is_looked_for_once_in_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls were under way at the same time, and in vain."""
    looks, look = count(), moves

    def counted(world: World, state: State) -> Iterator[Move]:
        next(looks)
        return look(world, state)

    monkeypatch.setitem(globals(), "moves", counted)
    at_once = 8
    idle = [Step("J0's intent at 0 goes", 0, 1 + n) for n in range(at_once)]
    trace = Trace("", [*idle, Step("J0 is applied at 0", 0, 1 + at_once)], ["an intent"])
    with pytest.raises(AssertionError):
        replay(trace)
    assert next(looks) < 10 * at_once * 2**at_once


UNSEEN = ("begins", "asks to commit", "waits for record 1", "gives up")
"""Steps that nobody outside sees, which come before some others."""


def _taken(world: World, state: State, what: str) -> Move | None:
    found = {move.what: move for move in moves(world, state)}
    if what in found:
        return found[what]
    number = what.partition(" ")[0].partition("'")[0]
    for step in UNSEEN:
        unseen = f"{number} {step}"
        if unseen in found:
            after = {move.what: move for move in moves(world, found[unseen].state)}
            if what in after:
                return after[what]
    return Move(what, state) if _says_nothing(state, what) else None


def _says_nothing(state: State, what: str) -> bool:
    """Whether a call had nothing to do: the write is aborted, or its intent gone, already."""
    number = int(what[1 : what.index("'" if "'" in what else " ")])
    if what.endswith("goes"):
        return state.records[int(what.split()[-2])].intent != number
    return what.endswith("aborted")


@pytest.fixture
def recorder(mediator: Service, other: Service) -> Iterator[Recorder]:
    with pytest.MonkeyPatch.context() as patched:
        recorder = Recorder((mediator, other), patched)
        make_mortal(mediator.mediator, patched)
        yield recorder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("late", [False, True], ids=["sent late", "answered late"])
@pytest.mark.parametrize("kind", ["inc", "update", "delete"])
@pytest.mark.parametrize("victim", VICTIMS)
async def test_what_is_done_is_what_the_model_does(
    mediator: Service,
    other: Service,
    pairs: str,
    recorder: Recorder,
    victim: str,
    kind: str,
    late: bool,
) -> None:
    step, fate, traced = 0, Stall(0, after=late), 0
    while not step or fate.reached.is_set():
        fate, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        recorder.trace = trace = Trace(id_)
        await _with_another_in_between(mediator, other, fate, (victim, kind, pairs, id_))
        await expire(mediator)
        recorder.trace = Trace("")
        state = replay(trace)
        assert all(record.intent < 0 for record in state.records), trace.steps
        traced += len(trace.steps)
        step += 1
    assert traced > step


async def _with_another_in_between(
    mediator: Service,
    other: Service,
    fate: Stall,
    what: tuple[str, str, str, str],
) -> None:
    victim, kind, database, id_ = what

    async def stalled() -> None:
        FATE.set(fate)
        await mediator.mediator.data.write(write_of(victim, database, id_, "victim"))

    task = asyncio.create_task(stalled())
    reached = asyncio.create_task(fate.reached.wait())
    await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await let_overdue(mediator)
    await write(other, kind, database, id_)
    fate.go_on.set()
    await asyncio.wait([task])
    task.exception()
