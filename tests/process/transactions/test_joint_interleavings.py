"""Joint writes that are killed or stalled at each step, with writes of another replica in between.

Whatever becomes of the victim, the object ends as if it and the other write had happened one after
the other, or the other one alone; and what was acknowledged has happened.
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


def after(kind: str, state: State, mine: str) -> State:
    """Return what a write makes of an object; `mine` distinguishes writes of one kind."""
    match kind:
        case "put":
            return {"title": mine, "hits": len(mine)}
        case "create":
            return state or {"title": mine, "hits": len(mine)}
        case "delete":
            return None
        case "update":
            return state and {"title": mine, "hits": state["hits"] + 1}
        case "inc":
            return state and {**state, "hits": state["hits"] + 1}
    return state and {**state, "title": mine}


def write_of(kind: str, database: str, id_: str, mine: str) -> WriteOperation:
    head = (database, "pairs", id_, unique())
    values: dict[str, Any] = {"title": mine, "hits": len(mine)}
    match kind:
        case "put":
            return Put(*head, values=values)
        case "create":
            return Create(*head, values=values)
        case "delete":
            return Delete(*head)
        case "update":
            operators = (OperatorCall("hits", Operator.INC, 1),)
            return Update(*head, values={"title": mine}, operators=operators)
    return inc(database, "pairs", id_)


async def write(by: Service, kind: str, database: str, id_: str) -> None:
    """Carry out a write; one that is refused has changed nothing."""
    if kind == "rename":
        return await _rename(by, database, id_)
    with suppress(NotFound, PreconditionFailed):
        await _write_unlocked(by, write_of(kind, database, id_, "other"))
    return None


async def _write_unlocked(by: Service, operation: WriteOperation) -> None:
    async def done() -> bool:
        try:
            await by.mediator.data.write(operation)
        except MediatorError as error:
            return type(error).__name__ != "Locked"
        return True

    await eventually(done)


async def _rename(by: Service, database: str, id_: str) -> None:
    """Write on condition that the object is unchanged."""

    async def renamed() -> bool:
        try:
            seen = await by.get(database, "pairs", id_, ("title",))
            condition = Condition(versions=(seen.versions,))
            operation = Update(
                database, "pairs", id_, unique(), condition, values={"title": "other"}
            )
            await by.mediator.data.write(operation)
        except NotFound:
            return True
        except MediatorError:
            return False
        return True

    await eventually(renamed)


async def state_of(by: Service, database: str, id_: str) -> State:
    try:
        seen = await by.mediator.data.read(Get(database, "pairs", id_), WHOLE)
    except NotFound:
        with pytest.raises(NotFound):  # nothing may remain on the other system either
            await by.mediator.data.read(Get(database, "pairs", id_, ("hits",)), WHOLE)
        return None
    assert not seen.partial
    return seen.values


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
        found = await state_of(other, pairs, id_)
        both, alone = after(kind, after(victim, OLD, "victim"), "other"), after(kind, OLD, "other")
        assert found == both or (found == alone and not acknowledged), crash.taken
        await expire(mediator)
        assert await state_of(mediator, pairs, id_) == found, crash.taken
        step += 1
    commit = set() if victim == "put" else {"commit"}  # a blind write is committed by its intents
    assert {"lock", "write"} | commit <= set(crash.taken)


async def _die(mediator: Service, operation: WriteOperation, crash: CrashPoint) -> bool:
    async def crashing() -> None:
        CRASH_POINT.set(crash)
        await mediator.mediator.data.write(operation)

    try:
        await asyncio.create_task(crashing())
    except Killed:
        return False
    return True


@dataclass
class Stall(CrashPoint):
    """Stalls at a step, once, until it is resumed."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    _under_way: int = 0

    async def run_step(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        at = len(self.taken)
        self.taken.append(name)
        result = await self._sent(send) if self.after else None
        if at == self.step:
            self.reached.set()
            await self.go_on.wait()
        return result if self.after else await self._sent(send)

    async def _sent(self, send: Callable[[], Awaitable[Any]]) -> Any:
        self._under_way += 1
        try:
            return await send()
        finally:
            self._under_way -= 1

    async def is_still(self) -> bool:
        """Whether no other step is under way: one may begin the write in the log."""
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
    """Its write is resolved by another replica, and then it goes on."""
    step, crash = 0, Stall(0, after=late)
    while not step or crash.reached.is_set():
        crash, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        write_it = asyncio.create_task(
            _stall(mediator, write_of(victim, pairs, id_, "victim"), crash)
        )
        reached = asyncio.create_task(crash.reached.wait())
        await asyncio.wait([write_it, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        await eventually(crash.is_still)
        await let_overdue(mediator)
        await write(other, kind, pairs, id_)
        crash.go_on.set()
        answer = await write_it
        await expire(mediator)
        first = after(kind, after(victim, OLD, "victim"), "other")
        last = after(victim, after(kind, OLD, "other"), "victim")
        allowed = [first, last]
        if isinstance(answer, OutcomeUnknown):
            allowed.append(after(kind, OLD, "other"))
        elif answer is not None:
            allowed = [after(kind, OLD, "other")]
        assert await state_of(other, pairs, id_) in allowed, (crash.taken, answer)
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
