"""Unique values of objects on two systems, and of transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import NotUnique
from mediator.model.operations import Create, Delete, Get, Outcome, Put, Update, WriteOperation
from mediator.schema.types import Values
from mediator.transactions.model import CommitRequest
from tests.process.service import Service, error_of, field_on, unique
from tests.process.transactions.crashable import CrashPoint
from tests.process.transactions.joint.pairs import CrashAt, attempt
from tests.process.transactions.open_writes import all_over, expire

SYSTEMS = ("redis", "postgres", "mongo")
OTHER = {"redis": "postgres", "postgres": "mongo", "mongo": "redis"}
WRITERS = 12


@pytest.fixture(scope="module", params=SYSTEMS)
async def users(mediator: Service, request: pytest.FixtureRequest) -> str:
    """A database with users on two systems; one of them has their e-mail addresses."""
    system = request.param
    fields = {
        "email": field_on(system, unique=True, group="email"),
        "tenant": field_on(system, group="email"),
        "login": field_on(system, group="email"),
        "title": field_on(OTHER[system]),
    }
    single = {"fields": {"email": field_on(system, unique=True)}}
    both = {"fields": fields, "unique": [["tenant", "login"]]}
    database = await mediator.put_schema({"users": both, "single": single})
    assert set(mediator.systems_of(database, "users")) == {system, OTHER[system]}
    return database


def put(database: str, id_: str, email: str | None, class_name: str = "users") -> Put:
    return Put(database, class_name, id_, unique(), values={"email": email})


async def holders(mediator: Service, database: str, ids: list[str], email: str) -> list[str]:
    results = await mediator.mediator.data.batch([Get(database, "users", id_) for id_ in ids])
    outcomes = [result for result in results if isinstance(result, Outcome)]
    return [outcome.id for outcome in outcomes if (outcome.values or {}).get("email") == email]


async def test_writers_race_for_a_value(mediator: Service, users: str) -> None:
    email, ids = unique(), [unique() for _ in range(3 * WRITERS)]
    await mediator.mediator.data.batch([put(users, id_, id_) for id_ in ids[::3]])
    operations: list[WriteOperation] = [
        Update(users, "users", id_, unique(), values={"email": email}) for id_ in ids[::3]
    ]
    operations += [put(users, id_, email) for id_ in ids[1::3]]
    operations += [
        Create(users, "users", id_, unique(), values={"email": email, "title": "t"})
        for id_ in ids[2::3]
    ]
    errors = await asyncio.gather(*(error_of(mediator, operation) for operation in operations))
    assert errors.count(None) <= 1
    assert all(isinstance(error, NotUnique | None) or error.detail for error in errors)
    assert len(await holders(mediator, users, ids, email)) == errors.count(None)
    await all_over(mediator)
    if not errors.count(None):  # they all blocked each other
        assert await error_of(mediator, operations[0]) is None
    retried = await asyncio.gather(*(error_of(mediator, operation) for operation in operations))
    assert all(isinstance(error, NotUnique) for error in retried if error is not None)
    assert len(await holders(mediator, users, ids, email)) == 1


async def test_writes_of_a_batch_are_refused_separately(mediator: Service, users: str) -> None:
    email, first = unique(), unique()
    await mediator.mediator.data.write(put(users, first, email))
    ids = [unique() for _ in range(6)]
    batch = [put(users, id_, email if i == 2 else id_) for i, id_ in enumerate(ids)]
    results = await mediator.mediator.data.batch(batch)
    assert [isinstance(result, NotUnique) for result in results] == [i == 2 for i in range(6)]
    refusal = results[2]
    assert isinstance(refusal, NotUnique)
    assert [location.pointer for location in refusal.locations] == ["/email"]
    await all_over(mediator)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_after_a_kill_at_any_step_the_old_or_the_new_value_is_claimed(
    mediator: Service, users: str, crashable: None, after: bool
) -> None:
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash, id_, other, old, new = CrashPoint(step, after), *(unique() for _ in range(4))
        await mediator.mediator.data.write(put(users, id_, old))
        update = Update(users, "users", id_, unique(), values={"email": new, "title": "t"})
        acknowledged = await attempt(mediator, update, crash)
        await expire(mediator)
        [owned] = [e for e in (old, new) if await holders(mediator, users, [id_], e)]
        assert owned == new or not acknowledged, crash.taken
        error = await error_of(mediator, put(users, other, owned))
        assert isinstance(error, NotUnique), crash.taken
        assert await error_of(mediator, put(users, other, old if owned == new else new)) is None
        step += 1
    assert "reserve" in crash.taken


async def test_a_writer_waits_for_a_reserved_value(
    mediator: Service, users: str, crashable: None
) -> None:
    """A writer that meets a reservation resolves its write if the coordinator has failed."""
    for after, outcome in ((False, type(None)), (True, NotUnique)):
        id_, email = unique(), unique()
        crash = CrashAt("commit", after=after)
        await attempt(mediator, put(users, id_, email), crash)
        waiting = asyncio.create_task(error_of(mediator, put(users, unique(), email)))
        await expire(mediator)
        error = await waiting
        if isinstance(error, outcome):
            continue
        # It gave up before the lease ended.
        assert isinstance(await error_of(mediator, put(users, unique(), email)), outcome)


async def test_a_partial_change_of_a_constraint_is_checked_with_the_other_fields(
    mediator: Service, users: str
) -> None:
    a, b, tenant = (unique() for _ in range(3))
    values: tuple[Values, Values] = (
        {"tenant": tenant, "login": "ada"},
        {"tenant": tenant, "login": "bob"},
    )
    for id_, value in zip((a, b), values, strict=True):
        await mediator.mediator.data.write(Put(users, "users", id_, unique(), values=value))
    conflicting = Update(users, "users", b, unique(), values={"login": "ada"})
    conflicting_with_title = Update(
        users, "users", b, unique(), values={"login": "ada", "title": "t"}
    )
    for update in (conflicting, conflicting_with_title):
        error = await error_of(mediator, update)
        assert isinstance(error, NotUnique)
        assert [location.pointer for location in error.locations] == ["/tenant", "/login"]
        assert await mediator.values(users, "users", b) == values[1]
    await mediator.mediator.data.write(Update(users, "users", a, unique(), unset=("login",)))
    assert await error_of(mediator, conflicting_with_title) is None
    assert await mediator.values(users, "users", b) == {**values[0], "title": "t"}
    await all_over(mediator)


async def test_a_committed_write_is_applied_after_its_constraint_was_dropped(
    mediator: Service, crashable: None
) -> None:
    fields = {"email": field_on("postgres", unique=True, group="email"), "n": field_on("redis")}
    database, id_ = await mediator.put_schema({"users": {"fields": fields}}), unique()
    await mediator.mediator.data.write(put(database, id_, "old"))
    await attempt(mediator, put(database, id_, "new"), CrashAt("commit", after=True))
    fields["email"] = field_on("postgres", group="email")
    await mediator.mediator.control.set_schema(database, {"classes": {"users": {"fields": fields}}})
    await expire(mediator)
    assert await holders(mediator, database, [id_], "new") == [id_]


async def test_transactions_keep_values_unique(mediator: Service, users: str) -> None:
    run, email = mediator.mediator.transactions.run, unique()
    a, b = unique(), unique()

    def commit(*writes: WriteOperation) -> Any:
        return run(CommitRequest(users, unique("tx"), (), writes))

    await commit(put(users, a, email, "single"), put(users, b, email))
    for class_name in ("single", "users"):
        with pytest.raises(NotUnique):
            await commit(put(users, unique(), unique()), put(users, unique(), email, class_name))
        with pytest.raises(NotUnique):
            await mediator.mediator.data.write(put(users, unique(), email, class_name))
    twins = [put(users, unique(), "twin", "single") for _ in range(2)]
    with pytest.raises(NotUnique):
        await commit(*twins)
    await commit(Delete(users, "single", a, unique()), Delete(users, "users", b, unique()))
    await commit(put(users, unique(), email, "single"), put(users, unique(), email))
    await all_over(mediator)
