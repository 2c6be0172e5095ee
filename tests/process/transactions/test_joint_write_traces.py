"""Recorded calls of joint writes, checked against their model.

Every call that reaches a store or the log is recorded, with the times of its start and answer,
while coordinators stall and another replica writes. The recorded calls must be steps that the model
(`tests/properties/transactions/joint_write_model.py`) allows, in an order that the times allow, and
none of them may break a guarantee.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from tests.faults.conditions import eventually
from tests.process.service import Service, unique
from tests.process.transactions.crashable import CRASH_POINT, make_crashable
from tests.process.transactions.joint_write_traces import (
    NEVER,
    Note,
    Recorder,
    Step,
    Trace,
    replay,
)
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
from tests.properties.transactions.joint_write_model import moves
from tests.properties.transactions.joint_write_states import Log, Move, State, World

__all__ = ["other", "pairs"]


def test_each_state_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls without effect were under way at the same time."""
    searches, find_moves = count(), moves

    def count_and_find(world: World, state: State) -> Iterator[Move]:
        next(searches)
        return find_moves(world, state)

    monkeypatch.setattr("tests.process.transactions.joint_write_traces.moves", count_and_find)
    concurrent = 8
    idle = [Step("J0's intent at 0 goes", 0, 1 + n) for n in range(concurrent)]
    trace = Trace("", [*idle, Step("J0 is applied at 0", 0, 1 + concurrent)], ["an intent"])
    with pytest.raises(AssertionError):
        replay(trace)
    assert next(searches) < 10 * concurrent * 2**concurrent


LOCKED = ("J0 locks record 0", "J0 locks record 1")


def test_a_write_that_is_logged_before_it_is_refused_commits() -> None:
    """A replica found its intents and searched for its entry just before it was added."""
    labels = (*LOCKED, "J0 is logged", "J0 is refused", "J0 is committed")
    steps = [Step(label, 2 * n, 2 * n + 1) for n, label in enumerate(labels)]
    assert replay(Trace("", steps, ["an intent"])).log == (Log.COMMITTED,)


def test_a_write_that_is_refused_before_it_is_logged_does_not_commit() -> None:
    labels = (*LOCKED, "J0 is refused", "J0 is logged", "J0 is committed")
    steps = [Step(label, 2 * n, 2 * n + 1) for n, label in enumerate(labels)]
    with pytest.raises(AssertionError):
        replay(Trace("", steps, ["an intent"]))


def test_a_failed_call_can_have_taken_effect() -> None:
    steps = [
        Step("J0 locks record 0", 0, NEVER, certain=False),
        *(Step(f"J0 {label}", n, n + 1) for n, label in ((1, "locks record 1"), (3, "is logged"))),
    ]
    assert replay(Trace("", steps, ["an intent"])).records[1].intent == 0
    committed = [*steps, Step("J0 is committed", 5, 6)]
    assert replay(Trace("", committed, ["an intent"])).log == (Log.COMMITTED,)
    with pytest.raises(AssertionError):
        replay(Trace("", committed[1:], ["an intent"]))


def test_a_resolving_step_can_complete_before_the_first_step() -> None:
    trace = Trace("", ticks=count(1))
    lock = Note(trace, 0)
    Note(trace, next(trace.ticks)).resolving("an intent", "{} is refused")
    Note(trace, next(trace.ticks)).resolving("an intent", "{}'s intent at 0 goes")
    Note(trace, next(trace.ticks)).resolving("of another object", "{} is refused")
    lock.joint("an intent", "{} locks record 0")
    assert len(trace.all_steps()) == 3
    assert replay(trace, complete=True).records[0].intent < 0


def _staged(*labels: str) -> Trace:
    steps = [Step(f"J0{label}", 2 * n, 2 * n + 1) for n, label in enumerate(labels)]
    return Trace("", steps, ["an intent"], {"an intent"})


BOTH_LOCKED = (" is logged", " locks record 0", " locks record 1")


def test_a_blind_write_that_is_logged_again_happens() -> None:
    """The log loses it after its coordinator has applied one step; another replica continues."""
    labels = (" is lost", " is logged again", " is committed", " is applied at 1")
    state = replay(_staged(*BOTH_LOCKED, " is applied at 0", *labels), complete=True)
    assert [record.writes for record in state.records] == [(0,), (0,)]


def test_a_blind_write_with_all_of_its_intents_is_not_aborted_by_others() -> None:
    """Once it is logged again it is committed, so no replica may remove an intent."""
    labels = (" is lost", " is logged again", " is aborted", "'s intent at 1 goes")
    with pytest.raises(AssertionError):
        replay(_staged(*BOTH_LOCKED, " is applied at 0", *labels))


def test_an_intent_that_is_set_after_its_record_is_fenced_is_refused() -> None:
    labels = (" is fenced at 1", " is aborted", "'s intent at 0 goes", " locks record 1")
    state = replay(_staged(*BOTH_LOCKED[:2], *labels), complete=True)
    assert state.log == (Log.ABORTED,)


@pytest.fixture
def recorder(mediator: Service, other: Service) -> Iterator[Recorder]:
    with pytest.MonkeyPatch.context() as patched:
        recorder = Recorder((mediator, other), patched)
        make_crashable(mediator.mediator, patched)
        yield recorder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("late", [False, True], ids=["sent late", "answered late"])
@pytest.mark.parametrize("kind", ["inc", "update", "delete"])
@pytest.mark.parametrize("victim", VICTIMS)
async def test_recorded_joint_writes_follow_the_model(
    mediator: Service,
    other: Service,
    pairs: str,
    recorder: Recorder,
    victim: str,
    kind: str,
    late: bool,
) -> None:
    step, crash, step_count = 0, Stall(0, after=late), 0
    while not step or crash.reached.is_set():
        crash, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        recorder.trace = trace = Trace(id_)
        await _write_in_between(mediator, other, crash, (victim, kind, pairs, id_))
        await expire(mediator)
        recorder.trace = Trace("")
        # In a thread: the search of a long trace must not block the renewal of leases.
        await asyncio.to_thread(replay, trace, complete=True)
        step_count += len(trace.steps)
        step += 1
    assert step_count > step


async def _write_in_between(
    mediator: Service,
    other: Service,
    crash: Stall,
    arguments: tuple[str, str, str, str],
) -> None:
    victim, kind, database, id_ = arguments

    async def stall_write() -> None:
        CRASH_POINT.set(crash)
        await mediator.mediator.data.write(write_of(victim, database, id_, "victim"))

    task = asyncio.create_task(stall_write())
    reached = asyncio.create_task(crash.reached.wait())
    await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await eventually(crash.is_still)  # else a later log entry has a lease that others wait for
    await let_overdue(mediator)
    await write(other, kind, database, id_)
    crash.resume.set()
    await asyncio.wait([task])
    task.exception()
