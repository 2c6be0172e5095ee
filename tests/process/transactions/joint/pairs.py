"""Objects on two systems, and writes to them that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mediator.base.errors import NotFound
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import RecordKey, RecordState, StoreTimeout, StoreUnavailable
from tests.process.service import Service, field_on, inc, unique
from tests.process.transactions.crashable import CRASH_POINT, CrashPoint, Killed
from tests.process.transactions.open_writes import expire

PAIRS = {
    "fields": {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
    }
}


OLD = {"title": "old", "hits": 10}


DAY_S = 86_400.0


def write_of(kind: str, database: str, id_: str) -> WriteOperation:
    head = (database, "pairs", id_, unique())
    match kind:
        case "create":
            return Create(*head, values={"title": "new", "hits": 1})
        case "put":
            return Put(*head, values={"title": "new", "hits": 1})
        case "update":
            operators = (OperatorCall("hits", Operator.INC, 1),)
            return Update(*head, values={"title": "new"}, operators=operators)
        case "read_modify_write":
            return ReadModifyWrite(*head, compute=lambda o: {"title": "new", "hits": o["hits"] + 1})
    return Delete(*head)


KINDS = ("create", "put", "update", "read_modify_write", "delete")


AFTER: dict[str, Any] = {
    "create": {"title": "new", "hits": 1},
    "put": {"title": "new", "hits": 1},
    "update": {"title": "new", "hits": 11},
    "read_modify_write": {"title": "new", "hits": 11},
    "delete": None,
}


async def state(mediator: Service, database: str, id_: str) -> Any:
    """Return the object, after checking that it is whole and has no intent."""
    route = await mediator.mediator.data.route(database, "pairs")
    intents = mediator.mediator.transactions.resolver.intents
    assert not any(
        s.intent for s in await intents.record_states([(f, id_) for f in route.fragments])
    )
    try:
        outcome = await mediator.get(database, "pairs", id_)
    except NotFound:
        # Nothing may remain on the other system either.
        with pytest.raises(NotFound):
            await mediator.get(database, "pairs", id_, ("hits",))
        return None
    assert not outcome.partial
    return outcome.values


async def attempt(mediator: Service, operation: WriteOperation, crash: CrashPoint) -> bool:
    """Carry out a write up to a crash point; return whether it was acknowledged."""

    async def write() -> None:
        CRASH_POINT.set(crash)
        await mediator.mediator.data.write(operation)

    try:
        await asyncio.create_task(write())
    except Killed:
        return False
    return True


class CrashAt(CrashPoint):
    """A crash point at the first step with a name."""

    def __init__(self, name: str, *, after: bool) -> None:
        super().__init__(0, after)
        self.name = name
        self.is_killed = False

    async def run_step(self, name: str, send: Callable[[], Any]) -> Any:
        if self.is_killed or (name == self.name and not self.after):
            self.is_killed = True
            raise Killed
        self.taken.append(name)
        result = await send()
        if name == self.name:
            self.is_killed = True
            raise Killed
        return result


class LateLock:
    """A `lock` that times out and sets its intents only when the test lets it arrive."""

    def __init__(self, store: Any) -> None:
        self._lock = store.lock
        self.intent = ""
        self.redo = ""
        self.keys: Sequence[RecordKey] = ()

    async def __call__(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        self.keys, self.intent, self.redo = keys, intent, redo
        raise StoreTimeout("no answer")

    async def arrive(self) -> RecordState:
        [record_state] = await self._lock(self.keys, self.intent, self.redo)
        assert isinstance(record_state, RecordState)
        return record_state


async def unavailable(*_: object) -> Any:
    raise StoreUnavailable("connection refused")


async def check_nothing_is_undone(mediator: Service, pairs: str, id_: str) -> None:
    """Check that applying an earlier write does not undo writes acknowledged after it."""
    data = mediator.mediator.data
    added = await data.write(inc(pairs, "pairs", id_))
    assert added.values == {"hits": 1}
    renamed = await data.write(Update(pairs, "pairs", id_, unique(), values={"title": "named"}))
    condition = Condition(versions=({"main": renamed.versions["main"]},))
    await data.write(Update(pairs, "pairs", id_, unique(), condition, values={"title": "again"}))
    await expire(mediator)
    assert await state(mediator, pairs, id_) == {"title": "again", "hits": 1}
