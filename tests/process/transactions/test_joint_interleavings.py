"""Joint writes that are killed or stalled at each step, with writes of another replica in between.

Whatever becomes of the victim, the object ends as if it and the other write had happened one after
the other, or the other one alone; an acknowledged write has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from mediator.base.errors import MediatorError, NotFound, OutcomeUnknown, PreconditionFailed
from mediator.model.operations import Condition, Create, Delete, Get, Put, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.freshness import WHOLE
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, inc, service, unique
from tests.process.transactions.crashable import CRASH_POINT, CrashPoint, Killed, make_crashable
from tests.process.transactions.open_writes import expire, let_overdue

PAIRS = {
    "fields": {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
    }
}
State: TypeAlias = dict[str, Any] | None
OLD = {"title": "old", "hits": 10}
VICTIMS = ("put", "update", "delete")
OTHERS = ("inc", "rename", "put", "update", "delete", "create")


@pytest.fixture(scope="module")
async def pairs(mediator: Service) -> str:
    database = await mediator.put_schema({"pairs": PAIRS})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture(scope="module")
async def other(
    mediator: Service, pairs: str, system_configs: Sequence[SystemConfig]
) -> AsyncIterator[Service]:
    """Another replica."""
    async with service(system_configs, mediator.catalogue_url) as replica:
        yield replica


@pytest.fixture
def crashable(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_crashable(mediator.mediator, patched)
        yield


def state_after(kind: str, state: State, title: str) -> State:
    """Return the state of an object after a write; `title` distinguishes writes of one kind."""
    match kind:
        case "put":
            return {"title": title, "hits": len(title)}
        case "create":
            return state or {"title": title, "hits": len(title)}
        case "delete":
            return None
        case "update":
            return state and {"title": title, "hits": state["hits"] + 1}
        case "inc":
            return state and {**state, "hits": state["hits"] + 1}
    return state and {**state, "title": title}


def write_of(kind: str, database: str, id_: str, title: str) -> WriteOperation:
    head = (database, "pairs", id_, unique())
    values: dict[str, Any] = {"title": title, "hits": len(title)}
    match kind:
        case "put":
            return Put(*head, values=values)
        case "create":
            return Create(*head, values=values)
        case "delete":
            return Delete(*head)
        case "update":
            operators = (OperatorCall("hits", Operator.INC, 1),)
            return Update(*head, values={"title": title}, operators=operators)
    return inc(database, "pairs", id_)


async def write(replica: Service, kind: str, database: str, id_: str) -> None:
    """Carry out a write; a refused one changes nothing."""
    if kind == "rename":
        return await _rename(replica, database, id_)
    with suppress(NotFound, PreconditionFailed):
        await _write_unlocked(replica, write_of(kind, database, id_, "other"))
    return None


async def _write_unlocked(replica: Service, operation: WriteOperation) -> None:
    async def is_done() -> bool:
        try:
            await replica.mediator.data.write(operation)
        except MediatorError as error:
            return type(error).__name__ != "Locked"
        return True

    await eventually(is_done)


async def _rename(replica: Service, database: str, id_: str) -> None:
    """Write on the condition that the object is unchanged."""

    async def is_renamed() -> bool:
        try:
            current = await replica.get(database, "pairs", id_, ("title",))
            condition = Condition(versions=(current.versions,))
            operation = Update(
                database, "pairs", id_, unique(), condition, values={"title": "other"}
            )
            await replica.mediator.data.write(operation)
        except NotFound:
            return True
        except MediatorError:
            return False
        return True

    await eventually(is_renamed)


async def state_of(replica: Service, database: str, id_: str) -> State:
    try:
        outcome = await replica.mediator.data.read(Get(database, "pairs", id_), WHOLE)
    except NotFound:
        with pytest.raises(NotFound):  # nothing may remain on the other system either
            await replica.mediator.data.read(Get(database, "pairs", id_, ("hits",)), WHOLE)
        return None
    assert not outcome.partial
    return outcome.values


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_killed_at_any_step(
    mediator: Service, other: Service, pairs: str, crashable: None, victim: str, kind: str
) -> None:
    step, crash = 0, CrashPoint(0, after=True)
    while not step or crash.is_over:
        crash, id_ = CrashPoint(step, after=True), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        acknowledged = await _die(mediator, write_of(victim, pairs, id_, "victim"), crash)
        await let_overdue(mediator)
        await write(other, kind, pairs, id_)
        current = await state_of(other, pairs, id_)
        state_after_both, state_after_other = (
            state_after(kind, state_after(victim, OLD, "victim"), "other"),
            state_after(kind, OLD, "other"),
        )
        assert current == state_after_both or (current == state_after_other and not acknowledged), (
            crash.taken
        )
        await expire(mediator)
        assert await state_of(mediator, pairs, id_) == current, crash.taken
        step += 1
    commit = set() if victim == "put" else {"commit"}  # a blind write is committed by its intents
    assert {"lock", "write"} | commit <= set(crash.taken)


async def _die(mediator: Service, operation: WriteOperation, crash: CrashPoint) -> bool:
    async def crash_write() -> None:
        CRASH_POINT.set(crash)
        await mediator.mediator.data.write(operation)

    try:
        await asyncio.create_task(crash_write())
    except Killed:
        return False
    return True


@dataclass
class Stall(CrashPoint):
    """A crash point that stalls at a step, once, until it is resumed."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    _under_way: int = 0

    async def run_step(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        at = len(self.taken)
        self.taken.append(name)
        result = await self._send(send) if self.after else None
        if at == self.step:
            self.reached.set()
            await self.resume.wait()
        return result if self.after else await self._send(send)

    async def _send(self, send: Callable[[], Awaitable[Any]]) -> Any:
        self._under_way += 1
        try:
            return await send()
        finally:
            self._under_way -= 1

    async def is_still(self) -> bool:
        """Whether no other step is under way, such as the begin in the log."""
        return not self._under_way


@pytest.mark.timeout(300)
@pytest.mark.parametrize("late", [False, True], ids=["sent late", "answered late"])
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_stalled_at_any_step(
    mediator: Service,
    other: Service,
    pairs: str,
    crashable: None,
    victim: str,
    kind: str,
    late: bool,
) -> None:
    """Another replica resolves the write; then the coordinator resumes."""
    step, crash = 0, Stall(0, after=late)
    while not step or crash.reached.is_set():
        crash, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        writing = asyncio.create_task(
            _stall(mediator, write_of(victim, pairs, id_, "victim"), crash)
        )
        reached = asyncio.create_task(crash.reached.wait())
        await asyncio.wait([writing, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        await eventually(crash.is_still)
        await let_overdue(mediator)
        await write(other, kind, pairs, id_)
        crash.resume.set()
        error = await writing
        await expire(mediator)
        first = state_after(kind, state_after(victim, OLD, "victim"), "other")
        last = state_after(victim, state_after(kind, OLD, "other"), "victim")
        expected = [first, last]
        if isinstance(error, OutcomeUnknown):
            expected.append(state_after(kind, OLD, "other"))
        elif error is not None:
            expected = [state_after(kind, OLD, "other")]
        assert await state_of(other, pairs, id_) in expected, (crash.taken, error)
        step += 1


async def _stall(
    mediator: Service, operation: WriteOperation, crash: Stall
) -> MediatorError | None:
    CRASH_POINT.set(crash)
    try:
        await mediator.mediator.data.write(operation)
    except MediatorError as error:
        return error
    return None
