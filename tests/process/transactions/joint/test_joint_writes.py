"""Joint writes, and concurrent changes of their classes and fragments."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.errors import (
    AlreadyExists,
    Conflict,
    MediatorError,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
)
from mediator.model.operations import (
    Condition,
    Put,
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from tests.process.service import Service, field_on, inc, unique
from tests.process.transactions.joint.pairs import (
    AFTER,
    OLD,
    PAIRS,
    CrashAt,
    attempt,
    state,
    write_of,
)
from tests.process.transactions.open_writes import all_over, expire, open_writes


async def test_completed_writes_are_removed_from_the_log_in_batches(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_over(mediator)
    monkeypatch.setattr("mediator.transactions.resolver.REMOVED_WITHIN_S", 0.2)
    transactions = mediator.mediator.transactions
    log, resolver = transactions.log, transactions.resolver
    await resolver.close()
    removed: list[list[str]] = []

    async def remove(intents: list[str]) -> None:
        removed.append(intents)

    monkeypatch.setattr(log, "remove", remove)
    for intent in ("a", "b", "c"):
        resolver.forget(intent)
        await asyncio.sleep(0)
    await resolver.close()
    assert removed == [["a", "b", "c"]]


async def test_joint_writes_of_a_batch_fail_separately(mediator: Service, pairs: str) -> None:
    existing, other, third = unique(), unique(), unique()
    for id_ in (existing, other, third):
        await mediator.create(pairs, "pairs", id_, **OLD)
    stale = Condition(versions=({"main": 1, "hits": 1},))
    overflow = (OperatorCall("hits", Operator.INC, 2**63 - 1),)
    new = unique()
    results = await mediator.mediator.data.batch(
        [
            write_of("create", pairs, new),
            write_of("create", pairs, existing),
            Put(pairs, "pairs", other, unique(), stale, values={"title": "x", "hits": 0}),
            Update(pairs, "pairs", third, unique(), values={"title": "x"}, operators=overflow),
            write_of("update", pairs, new),
            write_of("update", pairs, existing),
            write_of("read_modify_write", pairs, other),
            write_of("delete", pairs, third),
        ]
    )
    errors = [type(a) if isinstance(a, MediatorError) else None for a in results]
    assert errors[:4] == [None, AlreadyExists, PreconditionFailed, OperatorRefused]
    assert errors[4:] == [None] * 4
    assert await state(mediator, pairs, new) == {"title": "new", "hits": 2}
    assert await state(mediator, pairs, existing) == AFTER["update"]
    assert await state(mediator, pairs, other) == AFTER["read_modify_write"]
    assert await state(mediator, pairs, third) is None


async def test_a_class_cannot_be_dropped_during_a_joint_write(
    mediator: Service, crashable: None
) -> None:
    database = await mediator.put_schema({"pairs": PAIRS, "others": PAIRS})
    ids = {step: unique() for step in ("begin", "commit")}
    for step, id_ in ids.items():
        crash = CrashAt(step, after=True)
        assert not await attempt(mediator, write_of("create", database, id_), crash)
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(database, {"classes": {"others": PAIRS}})
    await expire(mediator)
    assert (await mediator.get(database, "pairs", ids["commit"])).partial == ()
    with pytest.raises(NotFound):
        await mediator.get(database, "pairs", ids["begin"])


async def test_the_entries_of_a_dropped_database_are_removed(
    mediator: Service, crashable: None
) -> None:
    await all_over(mediator)
    database = await mediator.put_schema({"pairs": PAIRS})
    crash = CrashAt("commit", after=True)
    assert not await attempt(mediator, write_of("create", database, "x"), crash)
    await mediator.mediator.control.delete_schema(database)
    assert await open_writes(mediator) == []


@pytest.mark.usefixtures("patient")
async def test_objects_older_than_a_group_get_their_fragment_when_it_is_written(
    mediator: Service,
) -> None:
    database = await mediator.put_schema({"pairs": {"fields": {"title": field_on("postgres")}}})
    control, data = mediator.mediator.control, mediator.mediator.data
    for id_ in ("a", "b", "c", "d", "e"):
        await mediator.create(database, "pairs", id_, title=id_)
    await control.set_schema(database, {"classes": {"pairs": PAIRS}})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    old = await mediator.get(database, "pairs", "a")
    assert (old.values, old.partial, old.versions["hits"]) == ({"title": "a"}, (), None)
    await asyncio.gather(*(data.write(inc(database, "pairs", "a")) for _ in range(8)))
    assert await state(mediator, database, "a") == {"title": "a", "hits": 8}
    results = await data.batch([inc(database, "pairs", "b"), inc(database, "pairs", "b")])
    assert [getattr(result, "values", result) for result in results] == [{"hits": 1}, {"hits": 2}]
    await data.write(write_of("update", database, "c"))
    assert await state(mediator, database, "c") == {"title": "new", "hits": 1}
    await data.write(Put(database, "pairs", "d", unique(), values={"title": "d", "hits": 4}))
    assert await state(mediator, database, "d") == {"title": "d", "hits": 4}
    both = Update(database, "pairs", "e", unique(), values={"title": "f", "hits": 5})
    await data.write(both)
    assert await state(mediator, database, "e") == {"title": "f", "hits": 5}
    with pytest.raises(NotFound):
        await data.write(inc(database, "pairs", "nobody"))
    with pytest.raises(NotFound):
        await mediator.get(database, "pairs", "nobody", ("hits",))


async def test_a_system_without_intents_holds_no_fragment(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = mediator.mediator.systems.get("redis").store
    monkeypatch.setattr(store, "__class__", type("Plain", (type(store),), {"lock": None}))
    with pytest.raises(Conflict, match="takes no part"):
        await mediator.put_schema({"pairs": PAIRS})
