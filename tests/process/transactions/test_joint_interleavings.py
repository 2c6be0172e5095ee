"""Joint writes that die or stall at each of their steps, with writes of another replica in between.

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
from tests.process.transactions.mortal import FATE, Fate, Killed, make_mortal
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
def mortal(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_mortal(mediator.mediator, patched)
        yield


def after(kind: str, state: State, mine: str) -> State:
    """Tell what a write makes of an object; `mine` tells writes of one kind apart."""
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
        await _patiently(by, write_of(kind, database, id_, "other"))
    return None


async def _patiently(by: Service, operation: WriteOperation) -> None:
    async def done() -> bool:
        try:
            await by.mediator.data.write(operation)
        except MediatorError as error:
            return type(error).__name__ != "Locked"
        return True

    await eventually(done)


async def _rename(by: Service, database: str, id_: str) -> None:
    """Write on condition that nobody was faster."""

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
        with pytest.raises(NotFound):  # nothing may linger on the other system either
            await by.mediator.data.read(Get(database, "pairs", id_, ("hits",)), WHOLE)
        return None
    assert not seen.partial
    return seen.values


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_killed_at_any_step(
    mediator: Service, other: Service, pairs: str, mortal: None, victim: str, kind: str
) -> None:
    step, fate = 0, Fate(0, after=True)
    while not step or fate.is_over:
        fate, id_ = Fate(step, after=True), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        acknowledged = await _die(mediator, write_of(victim, pairs, id_, "victim"), fate)
        await let_overdue(mediator)
        await write(other, kind, pairs, id_)
        found = await state_of(other, pairs, id_)
        both, alone = after(kind, after(victim, OLD, "victim"), "other"), after(kind, OLD, "other")
        assert found == both or (found == alone and not acknowledged), fate.taken
        await expire(mediator)
        assert await state_of(mediator, pairs, id_) == found, fate.taken
        step += 1
    assert {"commit", "write"} <= set(fate.taken)


async def _die(mediator: Service, operation: WriteOperation, fate: Fate) -> bool:
    async def doomed() -> None:
        FATE.set(fate)
        await mediator.mediator.data.write(operation)

    try:
        await asyncio.create_task(doomed())
    except Killed:
        return False
    return True


@dataclass
class Stall(Fate):
    """Stands still at a step, once, until it is woken."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def meet(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        at = len(self.taken)
        self.taken.append(name)
        result = await send() if self.after else None
        if at == self.step:
            self.reached.set()
            await self.go_on.wait()
        return result if self.after else await send()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("late", [False, True], ids=["sent late", "answered late"])
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_stalled_at_any_step(
    mediator: Service, other: Service, pairs: str, mortal: None, victim: str, kind: str, late: bool
) -> None:
    """It is taken for dead, and goes on."""
    step, fate = 0, Stall(0, after=late)
    while not step or fate.reached.is_set():
        fate, id_ = Stall(step, after=late), unique()
        await mediator.create(pairs, "pairs", id_, **OLD)
        write_it = asyncio.create_task(
            _stall(mediator, write_of(victim, pairs, id_, "victim"), fate)
        )
        reached = asyncio.create_task(fate.reached.wait())
        await asyncio.wait([write_it, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        await let_overdue(mediator)
        await write(other, kind, pairs, id_)
        fate.go_on.set()
        answer = await write_it
        await expire(mediator)
        first = after(kind, after(victim, OLD, "victim"), "other")
        last = after(victim, after(kind, OLD, "other"), "victim")
        allowed = [first, last]
        if isinstance(answer, OutcomeUnknown):
            allowed.append(after(kind, OLD, "other"))
        elif answer is not None:
            allowed = [after(kind, OLD, "other")]
        assert await state_of(other, pairs, id_) in allowed, (fate.taken, answer)
        step += 1


async def _stall(mediator: Service, operation: WriteOperation, fate: Stall) -> MediatorError | None:
    FATE.set(fate)
    try:
        await mediator.mediator.data.write(operation)
    except MediatorError as error:
        return error
    return None
