"""What joint writes really do, held against the model of them, call by call.

Every call that reaches a store or the log is noted, with when it began and was answered, while
coordinators stall and another replica writes. What was noted must be steps that the model
(`tests/properties/transactions/joint_write_model.py`) can take, in an order that those times allow,
and none of them may break a promise.
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
    """However many calls were under way at the same time, and in vain."""
    looks, look = count(), moves

    def counted(world: World, state: State) -> Iterator[Move]:
        next(looks)
        return look(world, state)

    monkeypatch.setattr("tests.process.transactions.joint_write_traces.moves", counted)
    at_once = 8
    idle = [Step("J0's intent at 0 goes", 0, 1 + n) for n in range(at_once)]
    trace = Trace("", [*idle, Step("J0 is applied at 0", 0, 1 + at_once)], ["an intent"])
    with pytest.raises(AssertionError):
        replay(trace)
    assert next(looks) < 10 * at_once * 2**at_once


LOCKED = ("J0 locks record 0", "J0 locks record 1")


def test_a_write_that_is_logged_before_it_is_refused_commits() -> None:
    """A replica found its intents, and looked for its entry just before that was added."""
    what = (*LOCKED, "J0 is logged", "J0 is refused", "J0 is committed")
    steps = [Step(each, 2 * n, 2 * n + 1) for n, each in enumerate(what)]
    assert replay(Trace("", steps, ["an intent"])).log == (Log.COMMITTED,)


def test_a_write_that_is_refused_before_it_is_logged_does_not_commit() -> None:
    what = (*LOCKED, "J0 is refused", "J0 is logged", "J0 is committed")
    steps = [Step(each, 2 * n, 2 * n + 1) for n, each in enumerate(what)]
    with pytest.raises(AssertionError):
        replay(Trace("", steps, ["an intent"]))


def test_a_call_that_failed_may_have_had_its_effect() -> None:
    steps = [
        Step("J0 locks record 0", 0, NEVER, certain=False),
        *(Step(f"J0 {what}", n, n + 1) for n, what in ((1, "locks record 1"), (3, "is logged"))),
    ]
    assert replay(Trace("", steps, ["an intent"])).records[1].intent == 0
    committed = [*steps, Step("J0 is committed", 5, 6)]
    assert replay(Trace("", committed, ["an intent"])).log == (Log.COMMITTED,)
    with pytest.raises(AssertionError):
        replay(Trace("", committed[1:], ["an intent"]))


def test_a_resolving_step_may_complete_before_the_first_step() -> None:
    trace = Trace("", ticks=count(1))
    lock = Note(trace, 0)
    Note(trace, next(trace.ticks)).resolving("an intent", "{} is refused")
    Note(trace, next(trace.ticks)).resolving("an intent", "{}'s intent at 0 goes")
    Note(trace, next(trace.ticks)).resolving("of another object", "{} is refused")
    lock.joint("an intent", "{} locks record 0")
    assert len(trace.all_steps()) == 3
    assert replay(trace, whole=True).records[0].intent < 0


def _staged(*what: str) -> Trace:
    steps = [Step(f"J0{each}", 2 * n, 2 * n + 1) for n, each in enumerate(what)]
    return Trace("", steps, ["an intent"], {"an intent"})


BOTH_LOCKED = (" is logged", " locks record 0", " locks record 1")


def test_a_blind_write_that_is_logged_again_happens() -> None:
    """Its coordinator has applied one step when the log loses it, and another replica goes on."""
    again = (" is lost", " is logged again", " is committed", " is applied at 1")
    state = replay(_staged(*BOTH_LOCKED, " is applied at 0", *again), whole=True)
    assert [record.writes for record in state.records] == [(0,), (0,)]


def test_a_blind_write_with_all_of_its_intents_is_not_aborted_by_others() -> None:
    """Once it is logged again it is committed, so another replica must not remove an intent."""
    gone = (" is lost", " is logged again", " is aborted", "'s intent at 1 goes")
    with pytest.raises(AssertionError):
        replay(_staged(*BOTH_LOCKED, " is applied at 0", *gone))


def test_an_intent_that_is_set_after_its_record_is_fenced_is_refused() -> None:
    late = (" is fenced at 1", " is aborted", "'s intent at 0 goes", " locks record 1")
    state = replay(_staged(*BOTH_LOCKED[:2], *late), whole=True)
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
    step, crash, traced = 0, Stall(0, after=late), 0
    while not step or crash.reached.is_set():
        crash, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        recorder.trace = trace = Trace(id_)
        await _with_another_in_between(mediator, other, crash, (victim, kind, pairs, id_))
        await expire(mediator)
        recorder.trace = Trace("")
        # In a thread: the search of a long trace must not cost the replicas their leases.
        await asyncio.to_thread(replay, trace, whole=True)
        traced += len(trace.steps)
        step += 1
    assert traced > step


async def _with_another_in_between(
    mediator: Service,
    other: Service,
    crash: Stall,
    what: tuple[str, str, str, str],
) -> None:
    victim, kind, database, id_ = what

    async def stalled() -> None:
        CRASH_POINT.set(crash)
        await mediator.mediator.data.write(write_of(victim, database, id_, "victim"))

    task = asyncio.create_task(stalled())
    reached = asyncio.create_task(crash.reached.wait())
    await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await eventually(crash.is_still)  # else what is logged later has a lease that others wait for
    await let_overdue(mediator)
    await write(other, kind, database, id_)
    crash.go_on.set()
    await asyncio.wait([task])
    task.exception()
