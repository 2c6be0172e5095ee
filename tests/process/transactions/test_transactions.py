"""Transactions over three systems: whole or not at all, whoever dies and whoever else writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import (
    AlreadyExists,
    IdempotencyReused,
    Invalid,
    Locked,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
    TransactionAborted,
    Unavailable,
)
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import SystemConfig
from mediator.transactions import coordinator
from mediator.transactions.log import Entry
from mediator.transactions.model import MOST_READS, MOST_WRITES, ReadSetEntry, Transaction
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, service, unique
from tests.process.transactions.mortal import FATE, Fate, Killed, make_mortal
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


@pytest.fixture(scope="module")
async def shop(mediator: Service) -> str:
    database = await mediator.put_schema(CLASSES)
    assert [mediator.systems_of(database, name) for name in SINGLE] == [
        ("postgres",),
        ("redis",),
        ("mongo",),
    ]
    return database


def transaction(
    database: str, *writes: WriteOperation, reads: Any = (), **more: Any
) -> Transaction:
    return Transaction(database, unique("tx"), tuple(reads), writes, **more)


def update(database: str, class_name: str, id_: str, **values: Any) -> Update:
    return Update(database, class_name, id_, unique("op"), values=values)


def seen(class_name: str, outcome: Outcome) -> ReadSetEntry:
    return ReadSetEntry(class_name, outcome.id, outcome.versions)


async def run(mediator: Service, wanted: Transaction) -> list[Outcome]:
    return await mediator.mediator.transactions.run(wanted)


async def values(mediator: Service, database: str, class_name: str, id_: str) -> Any:
    try:
        outcome = await mediator.get(database, class_name, id_)
    except NotFound:
        return None
    assert not outcome.partial
    return outcome.values


async def is_marked(mediator: Service, database: str, class_name: str, id_: str) -> bool:
    route = await mediator.mediator.data.route(database, class_name)
    intents = mediator.mediator.transactions.resolver.intents
    return any(s.intent for s in await intents.record_states([(f, id_) for f in route.fragments]))


@pytest.fixture
async def trio(mediator: Service, shop: str) -> dict[str, Outcome]:
    """One object on each system."""
    return {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}


# What a transaction does


async def test_all_is_done_on_every_system(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    created, deleted = unique(), await mediator.create(shop, "pairs", unique(), title="t", hits=1)
    outcomes = await run(
        mediator,
        transaction(
            shop,
            update(shop, "users", trio["users"].id, n=1),
            Update(
                shop,
                "carts",
                trio["carts"].id,
                unique(),
                operators=(OperatorCall("n", Operator.INC, 2),),
            ),
            ReadModifyWrite(
                shop, "notes", trio["notes"].id, unique(), compute=lambda o: {"n": o["n"] + 3}
            ),
            Create(shop, "pairs", created, unique(), values={"title": "new", "hits": 7}),
            Delete(shop, "pairs", deleted.id, unique()),
            reads=[seen(name, outcome) for name, outcome in trio.items()],
        ),
    )
    for number, name in enumerate(SINGLE, 1):
        now = await mediator.get(shop, name, trio[name].id)
        assert now.values == {"n": number}
        assert outcomes[number - 1].versions == now.versions
        assert not await is_marked(mediator, shop, name, trio[name].id)
    assert await values(mediator, shop, "pairs", created) == {"title": "new", "hits": 7}
    assert outcomes[3].created
    assert await values(mediator, shop, "pairs", deleted.id) is None
    assert outcomes[4].values is None
    for id_ in (created, deleted.id):
        assert not await is_marked(mediator, shop, "pairs", id_)


@pytest.mark.parametrize("changed", SINGLE)
async def test_a_changed_read_aborts_all(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], changed: str
) -> None:
    await mediator.mediator.data.write(update(shop, changed, trio[changed].id, n=5))
    others = [name for name in SINGLE if name != changed]
    wanted = transaction(
        shop,
        *(update(shop, name, trio[name].id, n=1) for name in others),
        reads=[seen(name, outcome) for name, outcome in trio.items()],
    )
    with pytest.raises(TransactionAborted) as aborted:
        await run(mediator, wanted)
    assert aborted.value.extra == {"changed": [{"class": changed, "id": trio[changed].id}]}
    for name in others:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 0}
        assert not await is_marked(mediator, shop, name, trio[name].id)


@pytest.mark.parametrize(
    ("written", "read", "looks"),
    [
        ("users", ["carts", "notes"], 0),
        ("users", [f"nobody{n}" for n in range(MOST_READS - 1)], 1),
        ("nobody", [f"nobody{n}" for n in range(MOST_READS)], 1),
    ],
    ids=["all known", "reads unknown", "all unknown"],
)
async def test_classes_that_are_unknown_cost_one_look(
    mediator: Service,
    shop: str,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    read: list[str],
    looks: int,
) -> None:
    data, looked = mediator.mediator.data, []
    look = data.route

    async def counted(database: str, class_name: str) -> Any:
        looked.append(class_name)
        return await look(database, class_name)

    monkeypatch.setattr(data, "route", counted)
    new = Create(shop, written, unique(), unique(), values={"n": 1})
    wanted = transaction(shop, new, reads=[ReadSetEntry(name, unique(), None) for name in read])
    refusal = {"users": TransactionAborted, "nobody": NotFound}[written]
    with pytest.raises(refusal) if looks else nullcontext():
        await run(mediator, wanted)
    assert len(looked) == looks


async def test_a_class_that_another_replica_made_is_found(
    mediator: Service, shop: str, system_configs: Sequence[SystemConfig]
) -> None:
    async with service(system_configs, mediator.catalogue_url) as replica:
        more = {**CLASSES, "more": CLASSES["notes"], "most": CLASSES["carts"]}
        await replica.mediator.control.set_schema(shop, {"classes": more})
    new = Create(shop, "users", unique(), unique(), values={"n": 1})
    reads = [ReadSetEntry(name, unique(), None) for name in ("more", "most")]
    assert len(await run(mediator, transaction(shop, new, reads=reads))) == 1


async def test_absence_can_be_read(mediator: Service, shop: str) -> None:
    for name in SINGLE:
        absent, made = unique(), unique()
        wanted = transaction(
            shop,
            Create(shop, name, made, unique(), values={"n": 1}),
            reads=[ReadSetEntry(name, absent, None)],
        )
        await run(mediator, wanted)
        await mediator.create(shop, name, absent, n=1)
        again = replace(wanted, writes=(Delete(shop, name, made, unique()),))
        with pytest.raises(TransactionAborted):
            await run(mediator, again)
        await mediator.mediator.data.write(Delete(shop, name, absent, unique()))
        await run(mediator, again)
        gone = transaction(
            shop, reads=[ReadSetEntry(name, made, None), ReadSetEntry(name, absent, None)]
        )
        assert await run(mediator, gone) == []


REFUSED: Mapping[str, tuple[Any, type[Exception]]] = {
    "a creation of what is there": (lambda db, c, i: Create(db, c, i, unique()), AlreadyExists),
    "an update of what is not": (lambda db, c, _: update(db, c, unique(), n=1), NotFound),
    "a deletion of what is not": (lambda db, c, _: Delete(db, c, unique(), unique()), NotFound),
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


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("place", SINGLE)
async def test_what_one_operation_refuses_none_does(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], what: str, place: str
) -> None:
    make, error = REFUSED[what]
    for name in SINGLE:
        await mediator.mediator.data.write(update(shop, name, trio[name].id, n=1))
    others = [name for name in SINGLE if name != place]
    writes = [update(shop, name, trio[name].id, n=9) for name in others]
    with pytest.raises(error):
        await run(mediator, transaction(shop, *writes, make(shop, place, trio[place].id)))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
        assert not await is_marked(mediator, shop, name, trio[name].id)


async def test_its_size_is_bounded(mediator: Service, shop: str) -> None:
    many = [update(shop, "users", unique(), n=1) for _ in range(MOST_WRITES + 1)]
    reads = [ReadSetEntry("users", unique(), None) for _ in range(MOST_READS + 1)]
    for wanted in (
        transaction(shop, *many),
        transaction(shop, reads=reads),
        transaction(shop, many[0], many[0]),
    ):
        with pytest.raises(Invalid):
            await run(mediator, wanted)


async def test_an_update_adds_a_part_that_is_lacking(mediator: Service, shop: str) -> None:
    object_ = await mediator.create(shop, "pairs", unique(), title="t")
    route = await mediator.mediator.data.route(shop, "pairs")
    part = route.fragment_of["hits"]
    store = mediator.mediator._systems.get(part.system).store
    await store.drop(part)
    operators = (OperatorCall("hits", Operator.INC, 4),)
    await run(
        mediator,
        transaction(
            shop,
            Update(shop, "pairs", object_.id, unique(), values={"note": "n"}, operators=operators),
        ),
    )
    assert await values(mediator, shop, "pairs", object_.id) == {
        "title": "t",
        "note": "n",
        "hits": 4,
    }


# Idempotency


async def test_a_retry_is_answered_and_not_repeated(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    operators = (OperatorCall("n", Operator.INC, 1),)
    writes = [Update(shop, n, trio[n].id, unique(), operators=operators) for n in SINGLE]
    keyed = [replace(write, fingerprint="f") for write in writes]
    wanted = transaction(shop, *keyed, fingerprint="f")
    first = await run(mediator, wanted)
    again = await run(mediator, wanted)
    assert [o.versions for o in again] == [o.versions for o in first]
    assert [o.values for o in again] == [o.values for o in first] == [{"n": 1}] * 3
    assert all(outcome.replayed for outcome in again)
    with pytest.raises(IdempotencyReused):
        await run(mediator, replace(wanted, fingerprint="g"))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}


# In each other's way


async def test_plain_writes_wait_for_a_mark_and_then_say_so(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    data, intents = mediator.mediator.data, mediator.mediator.transactions.resolver.intents
    log = mediator.mediator.transactions.log

    async def meet_mark(name: str) -> None:
        id_, intent = trio[name].id, unique("intent")
        [fragment] = (await data.route(shop, name)).fragments
        await log.begin(Entry(intent, shop, [[name, id_]]), 60.0)
        await intents.lock([(fragment, id_)], intent)
        with pytest.raises(Locked):
            await data.write(update(shop, name, id_, n=1))
        with pytest.raises(TransactionAborted, match="at work"):
            await run(mediator, transaction(shop, update(shop, name, id_, n=1)))
        with pytest.raises(TransactionAborted, match="at work"):
            await run(mediator, transaction(shop, reads=[seen(name, trio[name])]))
        writing = asyncio.create_task(data.write(update(shop, name, id_, n=1)))
        await asyncio.sleep(0)
        await intents.unlock([(fragment, id_)], intent)
        assert (await writing).versions != trio[name].versions
        await log.remove([intent])

    await asyncio.gather(*(meet_mark(name) for name in SINGLE))


async def test_a_mark_that_nobody_knows_stops_nobody(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    """It came late, when its transaction was over."""
    data, intents = mediator.mediator.data, mediator.mediator.transactions.resolver.intents
    for name in SINGLE:
        [fragment] = (await data.route(shop, name)).fragments
        await intents.lock([(fragment, trio[name].id)], unique("intent"))
        await run(mediator, transaction(shop, reads=[seen(name, trio[name])]))
        await intents.lock([(fragment, trio[name].id)], unique("intent"))
        await data.write(update(shop, name, trio[name].id, n=1))


async def test_writes_skewed_against_each_other_do_not_both_happen(
    mediator: Service, shop: str
) -> None:
    """Each reads what the other writes: one of them must not see the old value."""
    for first, second in (("users", "carts"), ("carts", "notes"), ("notes", "users")):
        for _ in range(5):
            one = await mediator.create(shop, first, unique(), n=0)
            two = await mediator.create(shop, second, unique(), n=0)
            wanted = (
                transaction(shop, update(shop, first, one.id, n=1), reads=[seen(second, two)]),
                transaction(shop, update(shop, second, two.id, n=1), reads=[seen(first, one)]),
            )
            results = await asyncio.gather(
                *(run(mediator, each) for each in wanted), return_exceptions=True
            )
            assert sum(isinstance(result, TransactionAborted) for result in results) >= 1


async def test_transactions_and_split_writes_do_not_mix(mediator: Service, shop: str) -> None:
    """Both write two parts of one object: they end as one of them, never as a mixture."""
    data = mediator.mediator.data
    for round_ in range(10):
        object_ = await mediator.create(shop, "pairs", unique(), title="0", hits=0)
        writes = [update(shop, "pairs", object_.id, title=str(i), hits=i) for i in range(1, 5)]
        ended = await asyncio.gather(
            *(data.write(write) for write in writes[:2]),
            *(run(mediator, transaction(shop, write)) for write in writes[2:]),
            return_exceptions=True,
        )
        failures = [each for each in ended if isinstance(each, BaseException)]
        assert all(isinstance(each, Unavailable | TransactionAborted) for each in failures)
        assert len(failures) < len(writes)  # they may have waited long enough for each other
        after = await values(mediator, shop, "pairs", object_.id)
        assert after["title"] == str(after["hits"]), round_


async def test_a_write_over_several_systems_is_waited_for(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one of its steps is still to come, nobody may take what is there for the whole."""
    monkeypatch.setattr(coordinator, "MAX_WAIT_S", 0.1)
    object_ = await mediator.create(shop, "pairs", unique(), title="0", hits=0)
    redis = mediator.mediator._systems.get("redis").store
    send, go_on, reached = redis.write, asyncio.Event(), asyncio.Event()

    async def late(*args: Any) -> Any:
        if args[0][0].id == object_.id:
            reached.set()
            await go_on.wait()
        return await send(*args)

    monkeypatch.setattr(redis, "write", late)
    split = update(shop, "pairs", object_.id, title="1", hits=1)
    writing = asyncio.create_task(mediator.mediator.data.write(split))
    await reached.wait()
    half = await mediator.get(shop, "pairs", object_.id)
    assert half.values == {"title": "1", "hits": 0}
    for wanted in (
        transaction(shop, reads=[seen("pairs", half)]),
        transaction(shop, update(shop, "pairs", object_.id, title="2", hits=2)),
    ):
        with pytest.raises(TransactionAborted, match="at work"):
            await run(mediator, wanted)
    go_on.set()
    await writing
    with pytest.raises(TransactionAborted, match="was changed meanwhile"):
        await run(mediator, transaction(shop, reads=[seen("pairs", half)]))
    await run(mediator, transaction(shop, update(shop, "pairs", object_.id, title="2", hits=2)))
    assert await values(mediator, shop, "pairs", object_.id) == {"title": "2", "hits": 2}


# Killed coordinators


@pytest.fixture
def mortal(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_mortal(mediator.mediator, patched)
        yield


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_step_it_happens_wholly_or_not(
    mediator: Service, shop: str, mortal: None, after: bool
) -> None:
    step, fate = 0, Fate(0, after)
    while not step or fate.is_over:
        fate = Fate(step, after)
        await _die(mediator, shop, fate)
        step += 1
    assert {"begin", "lock_each", "commit", "write"} <= set(fate.taken)


async def _die(mediator: Service, shop: str, fate: Fate) -> None:
    trio = {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}
    pair = await mediator.create(shop, "pairs", unique(), title="a", hits=0)
    made = unique()
    wanted = transaction(
        shop,
        *(
            Update(shop, name, o.id, unique(), operators=(OperatorCall("n", Operator.INC, 1),))
            for name, o in trio.items()
        ),
        update(shop, "pairs", pair.id, title="b", hits=1),
        Create(shop, "users", made, unique(), values={"n": 1}),
        reads=[seen(name, o) for name, o in trio.items()],
    )

    async def mortal() -> None:
        FATE.set(fate)
        await run(mediator, wanted)

    acknowledged = True
    try:
        await asyncio.create_task(mortal())
    except Killed:
        acknowledged = False
    await expire(mediator)
    found = [await values(mediator, shop, name, o.id) for name, o in trio.items()]
    found += [await values(mediator, shop, "pairs", pair.id)]
    found += [await values(mediator, shop, "users", made)]
    nothing = [{"n": 0}] * 3 + [{"title": "a", "hits": 0}, None]
    everything = [{"n": 1}] * 3 + [{"title": "b", "hits": 1}, {"n": 1}]
    assert found in (nothing, everything), fate.taken
    assert found == everything or not acknowledged
    for name, id_ in [*((n, o.id) for n, o in trio.items()), ("pairs", pair.id), ("users", made)]:
        assert not await is_marked(mediator, shop, name, id_), fate.taken


async def test_a_retry_finishes_what_was_committed(
    mediator: Service, shop: str, mortal: None
) -> None:
    """Whoever comes with the key gets the answer, and nothing is done twice."""
    operators = (OperatorCall("n", Operator.INC, 1),)
    step, fate = 0, Fate(0, after=True)
    while not step or fate.is_over:
        fate = Fate(step, after=True)
        trio = {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}
        writes = [
            Update(shop, n, o.id, unique(), fingerprint="f", operators=operators)
            for n, o in trio.items()
        ]
        wanted = transaction(shop, *writes, fingerprint="f")
        await _attempt(mediator, wanted, fate)
        log = mediator.mediator.transactions.log
        if entry := await log.find_operation(wanted.operation):
            await log.postpone(entry.intent, 0 if entry.answer is None else 60)
        again = await _retry(mediator, wanted)
        assert [outcome.values for outcome in again] == [{"n": 1}] * 3
        for name, o in trio.items():
            assert await values(mediator, shop, name, o.id) == {"n": 1}, fate.taken
        step += 1


async def _retry(mediator: Service, wanted: Transaction) -> list[Outcome]:
    """Come again until nobody else is at it: the duty that settles transactions may be first."""
    answers: list[list[Outcome]] = []

    async def answered() -> bool:
        with suppress(Locked):
            answers.append(await run(mediator, wanted))
        return bool(answers)

    await eventually(answered)
    return answers[0]


async def _attempt(mediator: Service, wanted: Transaction, fate: Fate) -> None:
    async def mortal() -> None:
        FATE.set(fate)
        await run(mediator, wanted)

    with suppress(Killed):
        await asyncio.create_task(mortal())
