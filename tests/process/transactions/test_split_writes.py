"""Writes over several systems: killed at every point, resolved by others, in each other's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import (
    AlreadyExists,
    Conflict,
    IdempotencyReused,
    Locked,
    MediatorError,
    NotFound,
    OperatorRefused,
    OutcomeUnknown,
    PreconditionFailed,
)
from mediator.base.observation import RedoRecovered
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import Query
from mediator.routing.freshness import ReadPreference
from mediator.stores.port import StoreUnavailable
from mediator.transactions.log import Entry, State
from tests.process.service import Service, field_on, inc, unique
from tests.process.transactions.mortal import FATE, Fate, Killed, make_mortal
from tests.process.transactions.open_writes import all_over, expire, let_overdue, open_writes

PAIRS = {
    "fields": {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
    }
}
OLD = {"title": "old", "hits": 10}
DAY_S = 86_400.0


@pytest.fixture(scope="module")
async def pairs(mediator: Service) -> str:
    """A database with a class whose anchor is on PostgreSQL and whose hits are on Redis."""
    database = await mediator.put_schema({"pairs": PAIRS})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture
def mortal(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_mortal(mediator.mediator, patched)
        yield


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
    """Return the object, after seeing that it is whole, and no intent is left on it."""
    route = await mediator.mediator.data.route(database, "pairs")
    intents = mediator.mediator.transactions.resolver.intents
    assert not any(
        s.intent for s in await intents.record_states([(f, id_) for f in route.fragments])
    )
    try:
        seen = await mediator.get(database, "pairs", id_)
    except NotFound:
        # Nothing may linger on the other system either.
        with pytest.raises(NotFound):
            await mediator.get(database, "pairs", id_, ("hits",))
        return None
    assert not seen.partial
    return seen.values


async def attempt(mediator: Service, operation: WriteOperation, fate: Fate) -> bool:
    """Let a coordinator carry out a write and meet its fate; says whether it was acknowledged."""

    async def doomed() -> None:
        FATE.set(fate)
        await mediator.mediator.data.write(operation)

    try:
        await asyncio.create_task(doomed())
    except Killed:
        return False
    return True


# Killed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
async def test_killed_at_any_step_it_happens_wholly_or_not(
    mediator: Service, pairs: str, mortal: None, kind: str, after: bool
) -> None:
    step, fate = 0, Fate(0, after)
    while not step or fate.is_over:
        fate, id_ = Fate(step, after), unique()
        if kind != "create":
            await mediator.create(pairs, "pairs", id_, **OLD)
        acknowledged = await attempt(mediator, write_of(kind, pairs, id_), fate)
        await expire(mediator)
        found = await state(mediator, pairs, id_)
        before = None if kind == "create" else OLD
        assert found == AFTER[kind] or (found == before and not acknowledged), fate.taken
        step += 1
    assert {"begin", "lock_each", "commit", "write"} <= set(fate.taken)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_retry_with_the_same_key_finishes_a_killed_write(
    mediator: Service, pairs: str, mortal: None, kind: str
) -> None:
    data = mediator.mediator.data
    step, fate = 0, Fate(0, after=True)
    while not step or fate.is_over:
        fate, id_ = Fate(step, after=True), unique()
        if kind != "create":
            await mediator.create(pairs, "pairs", id_, **OLD)
        operation = replace(write_of(kind, pairs, id_), fingerprint="f")
        await attempt(mediator, operation, fate)
        await let_overdue(mediator)
        answer = await data.recall(operation) or await data.write(operation)
        assert answer.values is None or answer.values["hits"] == AFTER[kind]["hits"]
        assert await state(mediator, pairs, id_) == AFTER[kind], fate.taken
        again = await data.recall(operation) or await data.write(operation)
        assert again.replayed
        assert again.versions == answer.versions
        assert await state(mediator, pairs, id_) == AFTER[kind], fate.taken
        step += 1


async def test_retries_during_the_write_do_not_double_it(mediator: Service, pairs: str) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, title="old", hits=0)
    data = mediator.mediator.data
    operation = replace(write_of("update", pairs, id_), fingerprint="f")

    async def retry() -> Any:
        return await data.recall(operation) or await data.write(operation)

    answers = await asyncio.gather(data.write(operation), *(retry() for _ in range(5)))
    assert all(answer.values == {"title": "new", "hits": 1} for answer in answers)
    assert await state(mediator, pairs, id_) == {"title": "new", "hits": 1}
    with pytest.raises(IdempotencyReused):
        await data.write(replace(operation, fingerprint="g"))


async def test_two_replicas_recover_at_once(mediator: Service, pairs: str, mortal: None) -> None:
    ids = [unique() for _ in range(8)]
    for id_ in ids:
        await mediator.create(pairs, "pairs", id_, **OLD)
        fate = Doomed("commit", after=True)
        assert not await attempt(mediator, write_of("update", pairs, id_), fate)
    await let_overdue(mediator)
    await asyncio.gather(*(mediator.mediator.transactions.resolver.recover() for _ in range(3)))
    await all_over(mediator)  # what goes on in the background may have taken some of them
    assert [await state(mediator, pairs, id_) for id_ in ids] == [AFTER["update"]] * len(ids)


class Doomed(Fate):
    """Dies at the first step of a name."""

    def __init__(self, name: str, *, after: bool) -> None:
        super().__init__(0, after)
        self.name = name
        self.is_dead = False

    async def meet(self, name: str, send: Callable[[], Any]) -> Any:
        if self.is_dead or (name == self.name and not self.after):
            self.is_dead = True
            raise Killed
        self.taken.append(name)
        result = await send()
        if name == self.name:
            self.is_dead = True
            raise Killed
        return result


# Met by others


@pytest.fixture
async def committed(mediator: Service, pairs: str, mortal: None) -> AsyncIterator[str]:
    """The id of an object whose write is committed, and whose coordinator is dead."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    put = Put(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    assert not await attempt(mediator, put, Doomed("commit", after=True))
    yield id_
    await all_over(mediator)


@pytest.fixture
async def half(mediator: Service, pairs: str) -> str:
    """The id of an object whose write has reached one of its systems, and is left there."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    put = Put(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    redis: Any = mediator.mediator._systems.get("redis").store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redis, "write", _away)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
        await let_overdue(mediator, in_s=DAY_S)  # whoever meets it is to resolve it
    return id_


async def _away(*_: object) -> Any:
    raise StoreUnavailable("connection refused")


async def test_writes_that_meet_a_committed_one_roll_it_forward_first(
    mediator: Service, pairs: str, committed: str
) -> None:
    await _see_that_nothing_is_undone(mediator, pairs, committed)


async def test_writes_that_meet_a_half_applied_one_roll_it_forward_first(
    mediator: Service, pairs: str, half: str
) -> None:
    await _see_that_nothing_is_undone(mediator, pairs, half)


async def _see_that_nothing_is_undone(mediator: Service, pairs: str, id_: str) -> None:
    """What is acknowledged after a write is not undone by it, whenever it is applied."""
    data = mediator.mediator.data
    added = await data.write(inc(pairs, "pairs", id_))
    assert added.values == {"hits": 1}
    renamed = await data.write(Update(pairs, "pairs", id_, unique(), values={"title": "named"}))
    condition = Condition(versions=({"main": renamed.versions["main"]},))
    await data.write(Update(pairs, "pairs", id_, unique(), condition, values={"title": "again"}))
    await expire(mediator)
    assert await state(mediator, pairs, id_) == {"title": "again", "hits": 1}


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_joint_writes_that_meet_a_committed_one_roll_it_forward_first(
    mediator: Service, pairs: str, half: str, kind: str
) -> None:
    await mediator.mediator.data.write(write_of(kind, pairs, half))
    after = {
        **AFTER,
        "update": {"title": "new", "hits": 1},
        "read_modify_write": {"title": "new", "hits": 1},
    }
    assert await state(mediator, pairs, half) == after[kind]
    await expire(mediator)
    assert await state(mediator, pairs, half) == after[kind]


async def test_a_reader_is_told_or_waits(mediator: Service, pairs: str, half: str) -> None:
    seen = await mediator.get(pairs, "pairs", half)
    assert (seen.values, seen.partial) == ({"title": "put", "hits": 10}, ("hits",))
    query = Query(pairs, "pairs", limit=1000)
    answer = await mediator.mediator.data.query(query)
    [listed] = [item.outcome for item in answer.items if item.outcome.id == half]
    assert listed.partial == ("hits",)
    [batched] = await mediator.mediator.data.batch([Get(pairs, "pairs", half)])
    assert isinstance(batched, Outcome)
    assert batched.partial == ("hits",)
    strong = await mediator.mediator.data.read(
        Get(pairs, "pairs", half), ReadPreference("strong", whole=True)
    )
    assert (strong.values, strong.partial) == ({"title": "put", "hits": 0}, ())
    assert (await mediator.get(pairs, "pairs", half)).partial == ()


async def test_strong_reads_of_a_batch_see_a_whole_object(
    mediator: Service, pairs: str, half: str
) -> None:
    get = Get(pairs, "pairs", half)
    [batched] = await mediator.mediator.data.batch([get], whole=True)
    assert isinstance(batched, Outcome)
    assert (batched.values, batched.partial) == ({"title": "put", "hits": 0}, ())


async def test_a_strong_query_resolves_what_it_meets(
    mediator: Service, pairs: str, half: str
) -> None:
    query, strong = Query(pairs, "pairs", limit=1000), ReadPreference("strong", whole=True)
    answer = await mediator.mediator.data.query(query, strong)
    [listed] = [item.outcome for item in answer.items if item.outcome.id == half]
    assert (listed.values, listed.partial) == ({"title": "put", "hits": 0}, ())


async def test_a_live_write_is_waited_for_and_says_so_when_it_lasts(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.transactions.joint.MAX_WAIT_S", 0.05)
    monkeypatch.setattr("mediator.operations.backoff.MAX_WAIT_S", 0.05)
    data, id_, intent = mediator.mediator.data, unique(), unique("intent")
    await mediator.create(pairs, "pairs", id_, **OLD)
    route = await data.route(pairs, "pairs")
    transactions = mediator.mediator.transactions
    keys = [(fragment, id_) for fragment in route.fragments]
    await transactions.log.begin(Entry(intent, pairs, [["pairs", id_]]), 60.0)
    await transactions.resolver.intents.lock(keys, intent)
    for operation in (write_of("put", pairs, id_), inc(pairs, "pairs", id_)):
        with pytest.raises(Locked):
            await data.write(operation)
    assert (await mediator.get(pairs, "pairs", id_)).values == OLD
    await transactions.resolver.intents.unlock(keys, intent)
    await transactions.log.remove([intent])
    await data.write(inc(pairs, "pairs", id_))
    assert await state(mediator, pairs, id_) == {"title": "old", "hits": 11}


async def test_an_intent_that_is_not_logged_is_refused_before_it_is_taken_away(
    mediator: Service, pairs: str
) -> None:
    """It may have come before its entry: from then on, that cannot come any more."""
    id_, intent = unique(), unique("intent")
    await mediator.create(pairs, "pairs", id_, **OLD)
    transactions = mediator.mediator.transactions
    route = await mediator.mediator.data.route(pairs, "pairs")
    await transactions.resolver.intents.lock([(route.anchor, id_)], intent)
    await mediator.mediator.data.write(write_of("update", pairs, id_))
    assert await state(mediator, pairs, id_) == AFTER["update"]
    assert not await transactions.log.begin(Entry(intent, pairs, [["pairs", id_]]), 60.0)
    assert not await transactions.log.commit(intent, [])


async def test_a_write_that_was_aborted_meanwhile_begins_again(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    log: Any = mediator.mediator.transactions.log
    commit = log.commit
    aborted: list[str] = []

    async def too_late(intent: str, redo: Any) -> Any:
        if not aborted:
            aborted.append(intent)
            await log.abort(intent)
        return await commit(intent, redo)

    monkeypatch.setattr(log, "commit", too_late)
    await mediator.mediator.data.write(write_of("update", pairs, id_))
    assert aborted
    assert await state(mediator, pairs, id_) == AFTER["update"]


async def test_writes_that_are_over_are_forgotten_together(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# Each other's way


async def test_concurrent_writes_to_one_object_end_as_one_of_them(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.transactions.joint.MAX_WAIT_S", 60.0)
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


async def test_what_a_batch_writes_over_several_systems_fails_one_by_one(
    mediator: Service, pairs: str
) -> None:
    there, other, gone = unique(), unique(), unique()
    for id_ in (there, other, gone):
        await mediator.create(pairs, "pairs", id_, **OLD)
    stale = Condition(versions=({"main": 1, "hits": 1},))
    overflow = (OperatorCall("hits", Operator.INC, 2**63 - 1),)
    made = unique()
    answers = await mediator.mediator.data.batch(
        [
            write_of("create", pairs, made),
            write_of("create", pairs, there),
            Put(pairs, "pairs", other, unique(), stale, values={"title": "x", "hits": 0}),
            Update(pairs, "pairs", gone, unique(), values={"title": "x"}, operators=overflow),
            write_of("update", pairs, made),
            write_of("update", pairs, there),
            write_of("read_modify_write", pairs, other),
            write_of("delete", pairs, gone),
        ]
    )
    errors = [type(a) if isinstance(a, MediatorError) else None for a in answers]
    assert errors[:4] == [None, AlreadyExists, PreconditionFailed, OperatorRefused]
    assert errors[4:] == [None] * 4
    assert await state(mediator, pairs, made) == {"title": "new", "hits": 2}
    assert await state(mediator, pairs, there) == AFTER["update"]
    assert await state(mediator, pairs, other) == AFTER["read_modify_write"]
    assert await state(mediator, pairs, gone) is None


async def test_what_is_locked_does_not_hold_a_batch_up(mediator: Service, pairs: str) -> None:
    """An object on which somebody is at work drops out, and is tried alone."""
    ids, intent = [unique() for _ in range(6)], unique("intent")
    for id_ in ids:
        await mediator.create(pairs, "pairs", id_, **OLD)
    route = await mediator.mediator.data.route(pairs, "pairs")
    intents = mediator.mediator.transactions.resolver.intents
    await intents.lock([(route.fragments[1], ids[2])], intent)
    answers = await mediator.mediator.data.batch([write_of("update", pairs, i) for i in ids])
    assert all(isinstance(answer, Outcome) for answer in answers)
    for id_ in ids:
        assert await state(mediator, pairs, id_) == AFTER["update"]


async def test_the_other_system_is_down_and_comes_back(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_over(mediator)
    operation = write_of("create", pairs, unique())
    redis: Any = mediator.mediator._systems.get("redis").store
    with monkeypatch.context() as patched:
        patched.setattr(redis, "write", _away)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(operation)
        assert await open_writes(mediator) == [State.COMMITTED]
    await expire(mediator)
    assert await state(mediator, pairs, operation.id) == AFTER["create"]
    told = [o for o in mediator.observed if isinstance(o, RedoRecovered)]
    assert (told[-1].database, told[-1].outcome) == (pairs, "applied")


async def test_no_class_is_taken_away_from_under_a_write(mediator: Service, mortal: None) -> None:
    database = await mediator.put_schema({"pairs": PAIRS, "others": PAIRS})
    ids = {step: unique() for step in ("begin", "commit")}
    for step, id_ in ids.items():
        fate = Doomed(step, after=True)
        assert not await attempt(mediator, write_of("create", database, id_), fate)
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(database, {"classes": {"others": PAIRS}})
    await expire(mediator)
    assert (await mediator.get(database, "pairs", ids["commit"])).partial == ()
    with pytest.raises(NotFound):
        await mediator.get(database, "pairs", ids["begin"])


async def test_a_dropped_database_takes_its_entries_along(mediator: Service, mortal: None) -> None:
    await all_over(mediator)
    database = await mediator.put_schema({"pairs": PAIRS})
    fate = Doomed("commit", after=True)
    assert not await attempt(mediator, write_of("create", database, "x"), fate)
    await mediator.mediator.control.delete_schema(database)
    assert await open_writes(mediator) == []


# Objects older than a group


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


async def test_a_system_that_carries_no_intents_holds_no_fragment(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = mediator.mediator._systems.get("redis").store
    monkeypatch.setattr(store, "__class__", type("Plain", (type(store),), {"lock": None}))
    with pytest.raises(Conflict, match="takes no part"):
        await mediator.put_schema({"pairs": PAIRS})
