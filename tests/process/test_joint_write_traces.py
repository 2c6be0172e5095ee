"""What joint writes really do, held against the model of them, call by call.

Every call that reaches a store or the log is noted as it is answered, while coordinators stall and
die and another replica writes. What was noted must be steps that the model can take, in that order
(`tests/properties/joint_write_model.py`), and none of them may break a promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.stores.port import RecordKey, Standing, Status, Write, WriteResult
from tests.process.mortal import FATE, make_mortal
from tests.process.service import Service, unique
from tests.process.test_joint_interleavings import (
    OLD,
    VICTIMS,
    Stall,
    let_overdue,
    other,
    pairs,
    settle,
    write,
    write_of,
)
from tests.properties.joint_write_model import Move, State, World, beginning, moves

__all__ = ["other", "pairs"]

SYSTEMS = ("postgres", "redis")
"""The systems of the records, the anchor's first."""


@dataclass
class Trace:
    """What was done to one object, in the words of the model."""

    id: str
    steps: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    singles: list[int] = field(default_factory=list)

    def joint(self, mark: str, what: str) -> None:
        """Note a step of a joint write, and that it has begun."""
        if mark not in self.marks:
            self.marks.append(mark)
            self.steps.append(f"J{self.marks.index(mark)} begins")
        self.steps.append(what.format(f"J{self.marks.index(mark)}"))

    def known(self, mark: str, what: str) -> None:
        """Note what somebody did about a joint write of this object, if it is one."""
        if mark in self.marks:
            self.joint(mark, what)

    def single(self, at: int) -> None:
        """Note a write to one record."""
        self.steps.append(f"single {at}")
        self.singles.append(at)


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
                store = each.mediator._systems.get(name).store
                _wrap(patched, store, "lock", self._locked, at)
                _wrap(patched, store, "write", self._written, at)
                _wrap(patched, store, "unlock", self._unlocked, at)
            log = each.mediator.transactions._log
            _wrap(patched, log, "begin", self._begun, 0)
            _wrap(patched, log, "commit", self._committed, 0)
            _wrap(patched, log, "abort", self._aborted, 0)
            _wrap(patched, log, "refuse", self._refused, 0)

    def _locked(
        self, at: int, standings: Sequence[Standing], keys: Sequence[RecordKey], mark: str
    ) -> None:
        for (_, id_), _standing in zip(keys, standings, strict=True):
            if id_ == self.trace.id:
                self.trace.joint(mark, f"{{}} locks record {at}")

    def _unlocked(
        self, at: int, _: None, keys: Sequence[RecordKey], mark: str, **_more: bool
    ) -> None:
        if any(id_ == self.trace.id for _, id_ in keys):
            self.trace.known(mark, f"{{}}'s intent at {at} goes")

    def _written(
        self, at: int, results: Sequence[WriteResult], calls: Sequence[Write], *_: str
    ) -> None:
        for call, result in zip(calls, results, strict=True):
            if call.id == self.trace.id and result.status is Status.APPLIED:
                if call.mark:
                    self.trace.joint(call.mark, f"{{}} is applied at {at}")
                else:
                    self.trace.single(at)

    def _begun(self, _at: int, _begun: bool, entry: Any, *_: float) -> None:
        if any(id_ == self.trace.id for _, id_ in entry.places):
            self.trace.joint(entry.mark, "{} is logged")

    def _committed(self, _at: int, _done: bool, mark: str, *_: Any) -> None:
        self.trace.known(mark, "{} is committed")

    def _aborted(self, _at: int, _done: bool, mark: str) -> None:
        self.trace.known(mark, "{} is aborted")

    def _refused(self, _at: int, _: None, marks: Sequence[str], *_more: float) -> None:
        for mark in marks:
            self.trace.known(mark, "{} is aborted")


def _wrap(
    patched: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., None], at: int
) -> None:
    send: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def noted(*args: Any, **more: Any) -> Any:
        result = await send(*args, **more)
        note(at, result, *args, **more)
        return result

    patched.setattr(owner, name, noted)


def replay(trace: Trace) -> State:
    """Take the steps of a trace in the model; fails where it cannot, or may not."""
    joint = tuple((0, 1) for _ in trace.marks)
    world = World(joint, tuple(trace.singles), crashes=len(joint))
    state, singles = beginning(world), iter(range(len(joint), len(joint) + len(trace.singles)))
    for step in trace.steps:
        what = step
        if step.startswith("single"):
            what = f"S{next(singles)} writes record {step[-1]}"
        move = _taken(world, state, what)
        assert move is not None, (what, trace.steps)
        assert not move.broken, (what, trace.steps)
        state = move.state
    return state


def _taken(world: World, state: State, what: str) -> Move | None:
    found = {move.what: move for move in moves(world, state)}
    if what in found:
        return found[what]
    # Steps that nobody outside sees come before some others.
    number = what.partition(" ")[0].partition("'")[0]
    for step in ("asks to commit", "waits for record 1", "gives up"):
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
        await settle(mediator)
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
