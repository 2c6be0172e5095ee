"""Objects of a class with `ttl_s` over the real stores, on one system and on three.

Tests advance the time: they move the stores' clocks forward, equally in every replica, and the wall
clock of `aging` with them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import MediatorError, NotFound, NotUnique, OutcomeUnknown, Unavailable
from mediator.base.observation import ClockSkewMeasured
from mediator.model.filters import Compare, Comparison
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Get,
    Outcome,
    Put,
    Update,
    WriteOperation,
)
from mediator.model.query import Join, Query
from mediator.query.execution import QueryResult
from mediator.schema.types import Values
from mediator.stores.kinds import make_store
from mediator.stores.port import SystemConfig
from mediator.transactions.model import CommitRequest
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, inc, service, unique

TTL_S = 3600.0
"""So long that a busy machine reads objects before they expire."""

LATER_S = 6 * 3600.0

MARGIN_S = TTL_S / 2


class Later(SystemClock):
    """A replica's clock that can be moved forward, alone or with those of the stores."""

    ahead_s = 0.0
    replica: Service | None = None

    def now(self) -> float:
        return time.time() + self.ahead_s

    def shift_stores(self, replica: Service, patch: pytest.MonkeyPatch) -> None:
        """Shift the stores' clocks, as a replica reads them, with this one."""
        self.replica = replica
        for guarded in replica.mediator.systems:
            patch.setattr(
                guarded.store, "time_us", partial(self._shifted_time_us, guarded.store.time_us)
            )

    async def _shifted_time_us(self, read: Callable[[], Awaitable[int]]) -> int:
        return await read() + round(self.ahead_s * 1_000_000)

    async def advance_to(self, ahead_s: float) -> None:
        """Move this clock `ahead_s` seconds ahead, and those of the stores as well."""
        assert self.replica is not None
        self.ahead_s = ahead_s
        await self.replica.mediator.read_clocks()


@pytest.fixture(scope="module")
async def later(
    mediator: Service, system_configs: Sequence[SystemConfig], catalogue_url: str
) -> AsyncIterator[Later]:
    """The clock of another replica, which tests can move."""
    assert mediator.configs
    clock = Later()
    async with service(system_configs, catalogue_url, clock=clock) as replica:
        with pytest.MonkeyPatch.context() as patch:
            clock.shift_stores(replica, patch)
            yield clock


@pytest.fixture
async def clock(later: Later) -> AsyncIterator[Later]:
    yield later
    await later.advance_to(0.0)


@pytest.fixture
def aging(clock: Later) -> Service:
    """The replica, whose clock shows the actual time when a test starts."""
    assert clock.replica is not None
    clock.replica.observed.clear()
    return clock.replica


@pytest.fixture
def unswept(aging: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the sweep: with clocks moved forward it would also find new objects expired."""

    async def sweep_nothing(_: object) -> int:
        return 0

    monkeypatch.setattr(aging.mediator.sweep, "_page", sweep_nothing)


@pytest.fixture(params=["redis", "postgres", "mongo", "spread"])
async def database(request: pytest.FixtureRequest, aging: Service) -> str:
    """A database whose class `articles` is placed on one system, or on three."""
    names = {"title": "postgres", "body": "mongo", "hits": "redis"}
    homes = {
        field: home if request.param == "spread" else request.param for field, home in names.items()
    }
    fields = {
        "title": field_on(homes["title"]),
        "body": field_on(homes["body"], "document", group="body"),
        "hits": field_on(homes["hits"], "integer", group="hits", index=True),
    }
    return await aging.put_schema({"articles": {"ttl_s": TTL_S, "fields": fields}})


@pytest.fixture
async def expired(aging: Service, database: str, clock: Later) -> str:
    """The database, with an expired object `a`."""
    await aging.create(database, "articles", "a", title="old", hits=7, body={"k": 1})
    assert await aging.values(database, "articles", "a")
    await clock.advance_to(LATER_S)
    return database


@pytest.mark.usefixtures("unswept")
@pytest.mark.parametrize("homes", [("redis",), ("postgres",), ("mongo",), ("redis", "postgres")])
async def test_an_expired_object_frees_its_value(
    aging: Service, clock: Later, homes: tuple[str, ...]
) -> None:
    fields = {
        "email": field_on(homes[0], unique=True),
        "title": field_on(homes[-1], group="title"),
    }
    database = await aging.put_schema({"users": {"ttl_s": TTL_S, "fields": fields}})
    assert len(aging.systems_of(database, "users")) == len(homes)
    await aging.create(database, "users", "a", email="a@x")
    with pytest.raises(NotUnique):
        await aging.create(database, "users", "b", email="a@x")
    await clock.advance_to(LATER_S)
    await aging.create(database, "users", "b", email="a@x")
    await clock.advance_to(2 * LATER_S)
    batch = [Create(database, "users", i, unique(), values={"email": "a@x"}) for i in ("c", "d")]
    # The operations of a batch have no order: either may be first.
    assert {type(result) for result in await aging.mediator.data.batch(batch)} == {
        Outcome,
        NotUnique,
    }
    await clock.advance_to(3 * LATER_S)
    put = Put(database, "users", "e", unique(), values={"email": "a@x"})
    await aging.mediator.transactions.run(CommitRequest(database, unique(), (), (put,)))


async def test_no_read_finds_an_expired_object(aging: Service, expired: str) -> None:
    for fields in (None, ("title",), ("hits",), ("body",), ("body", "hits")):
        with pytest.raises(NotFound):
            await aging.get(expired, "articles", "a", fields)
    [answer] = await aging.mediator.data.batch([Get(expired, "articles", "a")])
    assert isinstance(answer, NotFound)


@pytest.mark.parametrize("as_documents", [False, True])
async def test_a_join_does_not_match_fields_of_an_expired_object(
    aging: Service, clock: Later, as_documents: bool
) -> None:
    """It could if the system that holds both classes evaluated the join."""
    classes = {
        "authors": {"ttl_s": TTL_S, "fields": {"name": field_on("postgres", index=True)}},
        "texts": {"fields": {"by": {**field_on("postgres", "reference"), "to": "authors"}}},
    }
    database = await aging.put_schema(classes)
    assert aging.systems_of(database, "authors") == aging.systems_of(database, "texts")
    await aging.create(database, "authors", "a", name="Klose")
    await aging.create(database, "texts", "t", by="a")
    condition = Compare(Comparison.EQ, ("author", "name"), "Klose")
    join = Join("author", ("by",), "authors", ("name",))
    query = Query(
        database, "texts", condition, joins=(join,), allow_scan=True, as_documents=as_documents
    )
    data = aging.mediator.data
    assert _count_results(await data.query(query)) == 1
    await clock.advance_to(LATER_S)
    assert _count_results(await data.query(query)) == 0


def _count_results(answer: QueryResult) -> int:
    return len(answer.items if answer.documents is None else answer.documents)


async def test_an_object_is_readable_until_its_ttl_ends(
    aging: Service, database: str, clock: Later
) -> None:
    await aging.create(database, "articles", "young", title="t", hits=1)
    await clock.advance_to(TTL_S - MARGIN_S)
    assert await aging.values(database, "articles", "young") == {"title": "t", "hits": 1}
    await aging.mediator.data.write(inc(database, "articles", "young"))
    await clock.advance_to(TTL_S + MARGIN_S)
    with pytest.raises(NotFound):  # a write does not prolong the TTL
        await aging.get(database, "articles", "young")


async def test_an_expired_object_cannot_be_changed_or_deleted(
    aging: Service, expired: str, clock: Later
) -> None:
    data = aging.mediator.data
    for operation in (
        inc(expired, "articles", "a"),
        Update(expired, "articles", "a", unique(), values={"title": "x", "body": {}}),
        Delete(expired, "articles", "a", unique()),
    ):
        with pytest.raises(NotFound):
            await data.write(operation)
    [answer] = await data.batch([inc(expired, "articles", "a")])
    assert isinstance(answer, NotFound)
    await clock.advance_to(0.0)  # it was deleted, and does not come back with the clock
    with pytest.raises(NotFound):
        await aging.get(expired, "articles", "a")


@pytest.mark.usefixtures("unswept")
@pytest.mark.parametrize("way", ["create", "put", "put absent", "batch"])
async def test_the_id_of_an_expired_object_can_be_used_at_once(
    aging: Service, expired: str, clock: Later, way: str
) -> None:
    data = aging.mediator.data
    values: Values = {"title": "new", "hits": 1}
    operations: dict[str, WriteOperation] = {
        "create": Create(expired, "articles", "a", unique(), values=values),
        "put": Put(expired, "articles", "a", unique(), values=values),
        "put absent": Put(
            expired, "articles", "a", unique(), Condition(present=False), values=values
        ),
        "batch": Put(expired, "articles", "a", unique(), values=values),
    }
    operation = operations[way]
    answer: Outcome | MediatorError
    if way == "batch":
        [answer] = await data.batch([operation])
    else:
        answer = await data.write(operation)
    assert isinstance(answer, Outcome)
    assert answer.created
    await clock.advance_to(0.0)  # the stores' clocks were not put forward
    assert await aging.values(expired, "articles", "a") == values


async def test_the_sweep_deletes_expired_objects_that_are_not_read(
    aging: Service, database: str, clock: Later
) -> None:
    for number in range(3):
        await aging.create(database, "articles", f"a{number}", title="t", hits=1, body={})
    assert await _count_records(aging, database) == 3
    await clock.advance_to(LATER_S)
    await eventually(partial(_is_empty, aging, database))
    await clock.advance_to(0.0)
    await aging.create(database, "articles", "young", title="t", hits=1, body={})
    route = aging.mediator.data.model
    assert await aging.mediator.sweep.run(route) == 0
    assert await aging.values(database, "articles", "young")


async def _is_empty(aging: Service, database: str) -> bool:
    return await _count_records(aging, database) == 0


async def _count_records(aging: Service, database: str) -> int:
    """Count the records of the class on each system; return the largest number."""
    route = aging.mediator.data.model.databases[database].classes["articles"]
    counts = []
    for fragment in route.fragments:
        store = make_store(aging.configs[fragment.system])
        await store.open()
        try:
            counts.append(await store.count(fragment))
        finally:
            await store.close()
    return max(counts)


@pytest.mark.usefixtures("unswept")
async def test_a_committed_write_is_applied_to_an_object_expired_since(
    aging: Service, database: str, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its intent would stay, and other writes of the transaction would not learn it."""
    transactions, operation = aging.mediator.transactions, unique("tx")
    await aging.create(database, "articles", "a", title="old", hits=7)
    write = inc(database, "articles", "a", fingerprint="f")
    with monkeypatch.context() as patch:
        patch.setattr(transactions.resolver.applier, "apply", _fail)
        with pytest.raises(OutcomeUnknown):
            await transactions.run(CommitRequest(database, operation, (), (write,), "f"))
    await clock.advance_to(LATER_S)
    entry = await transactions.log.find_operation(operation)
    assert entry is not None
    await transactions.resolver.roll_forward(entry)
    await clock.advance_to(0.0)
    assert await aging.values(database, "articles", "a") == {"title": "old", "hits": 8}
    await aging.mediator.data.write(inc(database, "articles", "a"))


async def _fail(*_: object) -> None:
    raise Unavailable("away", system="redis")


@pytest.fixture(scope="module")
async def fast(
    mediator: Service, system_configs: Sequence[SystemConfig], catalogue_url: str
) -> AsyncIterator[Service]:
    """A replica whose clock is `LATER_S` ahead of all others."""
    assert mediator.configs
    clock = Later()
    clock.ahead_s = LATER_S
    async with service(system_configs, catalogue_url, clock=clock) as replica:
        yield replica


async def test_a_replica_whose_clock_is_ahead_finds_nothing_expired(
    aging: Service, database: str, fast: Service
) -> None:
    await aging.create(database, "articles", "a", title="t", hits=1, body={})
    for fields in (None, ("title",), ("hits",), ("body",)):
        assert await fast.get(database, "articles", "a", fields)
    everything = Query(database, "articles")
    [item] = (await fast.mediator.data.query(everything)).items
    assert item.outcome.id == "a"
    await fast.mediator.data.write(inc(database, "articles", "a"))
    values = await aging.values(database, "articles", "a")
    assert values is not None
    assert values["hits"] == 2
    assert await fast.mediator.sweep.run(fast.mediator.data.model) == 0
    assert await _count_records(aging, database) == 1


async def test_objects_of_a_replica_with_a_fast_clock_expire_at_the_same_age(
    aging: Service, database: str, fast: Service, clock: Later
) -> None:
    await fast.create(database, "articles", "a", title="t", hits=1)
    await clock.advance_to(TTL_S - MARGIN_S)
    assert await aging.values(database, "articles", "a") == {"title": "t", "hits": 1}
    await clock.advance_to(TTL_S + MARGIN_S)
    with pytest.raises(NotFound):
        await aging.get(database, "articles", "a")


async def test_a_sweep_whose_clocks_differ_deletes_nothing(
    aging: Service, database: str, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two clocks is wrong, and it is unknown which."""
    await aging.create(database, "articles", "a", title="t", hits=1, body={})
    monkeypatch.setattr(clock, "now", time.time)  # before, as a sweep may start at any time
    await clock.advance_to(LATER_S)
    assert await aging.mediator.sweep.run(aging.mediator.data.model) == 0
    assert await _count_records(aging, database) == 1
    skews = [skew for skew in aging.observed if isinstance(skew, ClockSkewMeasured)]
    assert {skew.system for skew in skews if skew.seconds > TTL_S} == set(aging.configs)
