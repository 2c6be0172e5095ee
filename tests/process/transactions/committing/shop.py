"""A shop on three systems, and transactions in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mediator.base.errors import (
    AlreadyExists,
    Locked,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
)
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Outcome,
    Put,
    Update,
    WriteOperation,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.transactions.model import CommitRequest, ReadSetEntry
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, unique
from tests.process.transactions.crashable import CRASH_POINT, CrashPoint, Killed
from tests.process.transactions.open_writes import expire

CLASSES = {
    "users": {"fields": {"n": field_on("postgres", "integer", default=0)}},
    "carts": {"fields": {"n": field_on("redis", "integer", default=0)}},
    "notes": {"fields": {"n": field_on("mongo", "integer", default=0)}},
    "pairs": {
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", group="hits"),
            "note": field_on("mongo", group="note"),
        }
    },
}


SINGLE = ("users", "carts", "notes")


def transaction(
    database: str, *writes: WriteOperation, reads: Any = (), **more: Any
) -> CommitRequest:
    return CommitRequest(database, unique("tx"), tuple(reads), writes, **more)


def update(database: str, class_name: str, id_: str, **values: Any) -> Update:
    return Update(database, class_name, id_, unique("op"), values=values)


def read_of(class_name: str, outcome: Outcome) -> ReadSetEntry:
    return ReadSetEntry(class_name, outcome.id, outcome.versions)


async def run(mediator: Service, request: CommitRequest) -> list[Outcome]:
    return await mediator.mediator.transactions.run(request)


async def values(mediator: Service, database: str, class_name: str, id_: str) -> Any:
    try:
        outcome = await mediator.get(database, class_name, id_)
    except NotFound:
        return None
    assert not outcome.partial
    return outcome.values


async def has_intent(mediator: Service, database: str, class_name: str, id_: str) -> bool:
    route = await mediator.mediator.data.route(database, class_name)
    intents = mediator.mediator.transactions.resolver.intents
    return any(s.intent for s in await intents.record_states([(f, id_) for f in route.fragments]))


REFUSED: Mapping[str, tuple[Any, type[Exception]]] = {
    "a creation of an existing object": (
        lambda db, c, i: Create(db, c, i, unique()),
        AlreadyExists,
    ),
    "an update of a missing object": (lambda db, c, _: update(db, c, unique(), n=1), NotFound),
    "a deletion of a missing object": (
        lambda db, c, _: Delete(db, c, unique(), unique()),
        NotFound,
    ),
    "a stale If-Match": (
        lambda db, c, i: Put(db, c, i, unique(), Condition(versions=({"main": 1},))),
        PreconditionFailed,
    ),
    "If-None-Match: *": (
        lambda db, c, i: Put(db, c, i, unique(), Condition(present=False)),
        PreconditionFailed,
    ),
    "an operator that overflows": (
        lambda db, c, i: Update(
            db, c, i, unique(), operators=(OperatorCall("n", Operator.INC, 2**63 - 1),)
        ),
        OperatorRefused,
    ),
}


async def check_killed(mediator: Service, shop: str, crash: CrashPoint) -> None:
    trio = {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}
    pair = await mediator.create(shop, "pairs", unique(), title="a", hits=0)
    created_id = unique()
    request = transaction(
        shop,
        *(
            Update(shop, name, o.id, unique(), operators=(OperatorCall("n", Operator.INC, 1),))
            for name, o in trio.items()
        ),
        update(shop, "pairs", pair.id, title="b", hits=1),
        Create(shop, "users", created_id, unique(), values={"n": 1}),
        reads=[read_of(name, o) for name, o in trio.items()],
    )

    async def coordinate() -> None:
        CRASH_POINT.set(crash)
        await run(mediator, request)

    acknowledged = True
    try:
        await asyncio.create_task(coordinate())
    except Killed:
        acknowledged = False
    await expire(mediator)
    objects = [await values(mediator, shop, name, o.id) for name, o in trio.items()]
    objects += [await values(mediator, shop, "pairs", pair.id)]
    objects += [await values(mediator, shop, "users", created_id)]
    before = [{"n": 0}] * 3 + [{"title": "a", "hits": 0}, None]
    after = [{"n": 1}] * 3 + [{"title": "b", "hits": 1}, {"n": 1}]
    assert objects in (before, after), crash.taken
    assert objects == after or not acknowledged
    for name, id_ in [
        *((n, o.id) for n, o in trio.items()),
        ("pairs", pair.id),
        ("users", created_id),
    ]:
        assert not await has_intent(mediator, shop, name, id_), crash.taken


async def retry(mediator: Service, request: CommitRequest) -> list[Outcome]:
    """Retry while locked: the task that resolves transactions can come first."""
    results: list[list[Outcome]] = []

    async def is_answered() -> bool:
        with suppress(Locked):
            results.append(await run(mediator, request))
        return bool(results)

    await eventually(is_answered)
    return results[0]


async def attempt(mediator: Service, request: CommitRequest, crash: CrashPoint) -> None:
    async def coordinate() -> None:
        CRASH_POINT.set(crash)
        await run(mediator, request)

    with suppress(Killed):
        await asyncio.create_task(coordinate())
