"""Writes over several systems: killed at every point, recovered, retried, in each other's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from mediator.errors import NotFound, Unavailable
from mediator.observation import RedoRecovered
from mediator.operations.model import Create, Delete, Put, Update, WriteOperation
from mediator.operations.operators import Operator, OperatorCall
from mediator.operations.split import SplitWriter
from mediator.query.model import Query
from mediator.stores.port import StoreUnavailable
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, inc, unique

PAIRS = {
    "fields": {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
    }
}
POINTS = ("add", "first", "rest", "remove")
"""Where a writer is killed: before a step is sent, or after it was answered."""
VICTIM: ContextVar[bool] = ContextVar("victim", default=False)


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@pytest.fixture(scope="module")
async def pairs(mediator: Service) -> str:
    """A database with a class whose anchor is on PostgreSQL and whose hits are on Redis."""
    database = await mediator.put_schema({"pairs": PAIRS})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture
def split(mediator: Service) -> SplitWriter:
    return mediator.mediator.data._split


@pytest.fixture
async def kill(
    mediator: Service, split: SplitWriter, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str, str], None]]:
    """Kill the next writer at a point; what follows finds everything as it was left."""
    with monkeypatch.context() as patched:

        def at(point: str, moment: str) -> None:
            owner, name = _step(mediator, split, point)
            send = getattr(owner, name)

            VICTIM.set(True)

            async def killed(*args: Any) -> Any:
                if not VICTIM.get():  # what goes on in the background is not the writer
                    return await send(*args)
                if moment == "after":
                    await send(*args)
                patched.undo()
                raise Killed

            patched.setattr(owner, name, killed)

        yield at


def _step(mediator: Service, split: SplitWriter, point: str) -> tuple[Any, str]:
    if point in ("add", "remove"):
        return split._redo, point
    system = "postgres" if point == "first" else "redis"
    return mediator.mediator._systems.get(system).store, "write"


async def expire(mediator: Service, split: SplitWriter, operation: str) -> None:
    """Let the lease of a killed writer pass."""
    await split._redo.postpone(operation, 0)


async def settled(mediator: Service) -> int:
    return await mediator.mediator.data.recover()


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
    return Delete(*head)


async def state(mediator: Service, database: str, id_: str) -> Any:
    try:
        seen = await mediator.get(database, "pairs", id_)
    except NotFound:
        # Nothing may linger on the other system either.
        with pytest.raises(NotFound):
            await mediator.get(database, "pairs", id_, ("hits",))
        return None
    assert not seen.partial
    return seen.values


BEFORE = {"create": None}
AFTER = {
    "create": {"title": "new", "hits": 1},
    "put": {"title": "new", "hits": 1},
    "update": {"title": "new", "hits": 11},
    "delete": None,
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["create", "put", "update", "delete"])
async def test_a_killed_write_is_finished_or_never_was(
    mediator: Service, pairs: str, split: SplitWriter, kill: Any, kind: str, point: str, moment: str
) -> None:
    id_ = unique()
    old = {"title": "old", "hits": 10}
    if kind != "create":
        await mediator.create(pairs, "pairs", id_, **old)
    operation = write_of(kind, pairs, id_)
    # An update sends its operators first: they are what a store may refuse.
    spot = {"first": "rest", "rest": "first"}.get(point, point) if kind == "update" else point
    kill(spot, moment)
    with pytest.raises(Killed):
        await mediator.mediator.data.write(operation)
    begun = (point, moment) not in {("add", "before"), ("add", "after"), ("first", "before")}
    await expire(mediator, split, operation.operation)
    await settled(mediator)
    expected = AFTER[kind] if begun else BEFORE.get(kind, old)
    assert await state(mediator, pairs, id_) == expected
    assert await split._redo.find(operation.operation) is None
    # Once more: nothing is doubled.
    assert await settled(mediator) == 0
    assert await state(mediator, pairs, id_) == expected


@pytest.mark.parametrize("point", POINTS)
async def test_a_retry_with_the_same_key_finishes_a_killed_write(
    mediator: Service, pairs: str, kill: Any, point: str
) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, title="old", hits=10)
    operators = (OperatorCall("hits", Operator.INC, 1),)
    operation = Update(
        pairs, "pairs", id_, unique(), fingerprint="f", values={"title": "new"}, operators=operators
    )
    kill(point, "after")
    with pytest.raises(Killed):
        await mediator.mediator.data.write(operation)
    data = mediator.mediator.data
    answer = await data.recall(operation) or await data.write(operation)
    assert answer.values == {"title": "new", "hits": 11}
    assert await state(mediator, pairs, id_) == {"title": "new", "hits": 11}
    again = await data.recall(operation)
    assert again is not None
    assert again.values == answer.values
    assert await state(mediator, pairs, id_) == {"title": "new", "hits": 11}


async def test_retries_during_the_write_do_not_double_it(mediator: Service, pairs: str) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, title="old", hits=0)
    data = mediator.mediator.data
    operators = (OperatorCall("hits", Operator.INC, 1),)
    operation = Update(
        pairs, "pairs", id_, unique(), fingerprint="f", values={"title": "new"}, operators=operators
    )

    async def retry() -> Any:
        return await data.recall(operation) or await data.write(operation)

    answers = await asyncio.gather(data.write(operation), *(retry() for _ in range(5)))
    assert all(answer.values == {"title": "new", "hits": 1} for answer in answers)
    assert await state(mediator, pairs, id_) == {"title": "new", "hits": 1}


async def test_a_reader_is_told_of_the_part_that_is_missing(
    mediator: Service, pairs: str, split: SplitWriter, kill: Any
) -> None:
    id_ = unique()
    operation = write_of("create", pairs, id_)
    kill("rest", "before")
    with pytest.raises(Killed):
        await mediator.mediator.data.write(operation)
    seen = await mediator.get(pairs, "pairs", id_)
    assert (seen.values, seen.partial) == ({"title": "new"}, ("hits",))
    answer = await mediator.mediator.data.query(Query(pairs, "pairs", limit=1000))
    [listed] = [item.outcome for item in answer.items if item.outcome.id == id_]
    assert listed.partial == ("hits",)
    await expire(mediator, split, operation.operation)
    await settled(mediator)
    assert (await mediator.get(pairs, "pairs", id_)).partial == ()


async def test_the_other_system_is_down_and_comes_back(
    mediator: Service, pairs: str, split: SplitWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = unique()
    operation = write_of("create", pairs, id_)

    async def away(calls: object) -> Any:
        raise StoreUnavailable("connection refused")

    redis = mediator.mediator._systems.get("redis").store
    with monkeypatch.context() as patched:
        patched.setattr(redis, "write", away)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(operation)
        assert await settled(mediator) == 0
        record = await split._redo.find(operation.operation)
        assert record is not None
        assert record.birth is not None
    await expire(mediator, split, operation.operation)
    await settled(mediator)
    assert await state(mediator, pairs, id_) == AFTER["create"]
    assert RedoRecovered(pairs, "pairs", operation.operation, "applied") in mediator.observed


async def test_two_replicas_recover_at_once(
    mediator: Service, pairs: str, split: SplitWriter, kill: Any
) -> None:
    ids = [unique() for _ in range(8)]
    for id_ in ids:
        await mediator.create(pairs, "pairs", id_, title="old", hits=10)
        operation = write_of("update", pairs, id_)
        kill("first", "before")
        with pytest.raises(Killed):
            await mediator.mediator.data.write(operation)
        await expire(mediator, split, operation.operation)
    await asyncio.gather(*(settled(mediator) for _ in range(3)))

    async def recovered() -> bool:  # what goes on in the background may have taken some of them
        states = [await state(mediator, pairs, id_) for id_ in ids]
        return states == [AFTER["update"]] * len(ids)

    await eventually(recovered)


async def test_concurrent_writes_to_one_object_end_as_one_of_them(
    mediator: Service, pairs: str
) -> None:
    for _ in range(5):
        id_ = unique()
        await mediator.create(pairs, "pairs", id_, title="old", hits=0)
        writes: list[WriteOperation] = [
            Put(pairs, "pairs", id_, unique(), values={"title": str(n), "hits": n})
            for n in range(6)
        ]
        writes.insert(3, Delete(pairs, "pairs", id_, unique()))
        await asyncio.gather(*map(mediator.mediator.data.write, writes))
        seen = await state(mediator, pairs, id_)
        assert seen is None or seen["title"] == str(seen["hits"])


async def test_a_write_waits_for_one_under_way_and_says_so_when_it_lasts(
    mediator: Service, pairs: str, split: SplitWriter, kill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.operations.split.PATIENCE_S", 0.05)
    id_ = unique()
    killed = write_of("create", pairs, id_)
    kill("rest", "before")
    with pytest.raises(Killed):
        await mediator.mediator.data.write(killed)
    with pytest.raises(Unavailable):
        await mediator.mediator.data.write(Delete(pairs, "pairs", id_, unique()))
    # What touches one system only goes on.
    title = Update(pairs, "pairs", id_, unique(), values={"title": "newer"})
    await mediator.mediator.data.write(title)
    await expire(mediator, split, killed.operation)
    await settled(mediator)
    await mediator.mediator.data.write(Delete(pairs, "pairs", id_, unique()))
    assert await state(mediator, pairs, id_) is None


async def test_a_record_whose_class_is_gone_is_dropped(
    mediator: Service, split: SplitWriter, kill: Any
) -> None:
    database = await mediator.put_schema({"pairs": PAIRS, "others": PAIRS})
    operation = write_of("create", database, "x")
    kill("add", "after")
    with pytest.raises(Killed):
        await mediator.mediator.data.write(operation)
    document = {"classes": {"others": PAIRS}}
    await mediator.mediator.control.set_schema(database, document)
    await expire(mediator, split, operation.operation)
    await settled(mediator)
    assert await split._redo.find(operation.operation) is None
    assert RedoRecovered(database, "pairs", operation.operation, "dropped") in mediator.observed


async def test_a_dropped_database_takes_its_records_along(
    mediator: Service, split: SplitWriter, kill: Any
) -> None:
    database = await mediator.put_schema({"pairs": PAIRS})
    operation = write_of("create", database, "x")
    kill("rest", "before")
    with pytest.raises(Killed):
        await mediator.mediator.data.write(operation)
    await mediator.mediator.control.delete_schema(database)
    assert await split._redo.find(operation.operation) is None


async def test_objects_older_than_a_group_get_their_part_when_it_is_written(
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
    answers = await data.batch([inc(database, "pairs", "b"), inc(database, "pairs", "b")])
    assert [getattr(answer, "values", answer) for answer in answers] == [{"hits": 1}, {"hits": 2}]
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
