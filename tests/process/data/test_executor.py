"""The executor over the real stores: operations over one system and over several."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import (
    AdvisoryOnly,
    AlreadyExists,
    IdempotencyReused,
    MediatorError,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
    PreconditionRequired,
    Unavailable,
)
from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    Condition,
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import OrderBy, Query
from mediator.query.execution import Item
from mediator.routing.fragments import plan_write
from mediator.stores.port import StoreUnavailable
from tests.process.service import Service, field_on, inc, unique

PRESENT = Condition(present=True)
ABSENT = Condition(present=False)

SPREAD = {
    "fields": {
        "title": field_on("postgres"),
        "body": field_on("mongo", "document", group="body"),
        "hits": field_on("redis", "integer", group="hits", index=True),
    }
}
ON_ONE = {"fields": {"title": {"type": "string"}, "hits": {"type": "integer", "index": True}}}


@pytest.fixture(scope="module")
async def spread(mediator: Service) -> str:
    """A database whose class `articles` lives on three systems."""
    database = await mediator.put_schema({"articles": SPREAD})
    assert set(mediator.systems_of(database, "articles")) == {"redis", "postgres", "mongo"}
    return database


@pytest.fixture(scope="module", params=["redis", "postgres", "mongo"])
async def single(mediator: Service, request: pytest.FixtureRequest) -> str:
    """A database whose class `articles` lives on one system; each in turn."""
    fields = {
        "title": field_on(request.param),
        "hits": field_on(request.param, "integer"),
    }
    database = await mediator.put_schema({"articles": {"fields": fields}})
    assert mediator.systems_of(database, "articles") == (request.param,)
    return database


@pytest.fixture(scope="module", params=["spread", "single"])
async def either(request: pytest.FixtureRequest, mediator: Service) -> str:
    """A database with `articles` on one system, or on three."""
    classes = SPREAD if request.param == "spread" else ON_ONE
    return await mediator.put_schema({"articles": classes})


def versions(outcome: Outcome) -> Mapping[str, int | None]:
    return outcome.versions


async def test_an_object_is_created_read_changed_and_deleted(
    mediator: Service, either: str
) -> None:
    created = await mediator.create(either, "articles", "a", title="one", hits=1)
    assert created.created
    assert await mediator.values(either, "articles", "a") == {"title": "one", "hits": 1}
    await mediator.mediator.data.write(inc(either, "articles", "a"))
    put = Put(either, "articles", "b", unique(), values={"title": "two"})
    assert (await mediator.mediator.data.write(put)).created
    assert await mediator.values(either, "articles", "b") == {"title": "two"}
    update = Update(either, "articles", "a", unique(), values={"title": "new"}, unset=("hits",))
    await mediator.mediator.data.write(update)
    assert await mediator.values(either, "articles", "a") == {"title": "new"}
    await mediator.mediator.data.write(Delete(either, "articles", "a", unique()))
    with pytest.raises(NotFound):
        await mediator.get(either, "articles", "a")
    with pytest.raises(NotFound):
        await mediator.get(either, "articles", "a", ("hits",))


async def test_a_put_replaces_every_part(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "whole", title="t", hits=3, body={"a": 1})
    replaced = Put(spread, "articles", "whole", unique(), values={"title": "only"})
    outcome = await mediator.mediator.data.write(replaced)
    assert not outcome.created
    assert set(outcome.systems) == {"redis", "postgres", "mongo"}
    assert await mediator.values(spread, "articles", "whole") == {"title": "only"}


async def test_a_projection_reads_only_the_systems_it_needs(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "p", title="t", hits=3, body={"a": 1})
    hits = await mediator.get(spread, "articles", "p", ("hits",))
    assert (hits.values, hits.systems, set(hits.versions)) == ({"hits": 3}, ("redis",), {"hits"})
    both = await mediator.get(spread, "articles", "p", ("hits", "title"))
    assert both.values == {"hits": 3, "title": "t"}
    assert set(both.systems) == {"redis", "postgres"}
    none = await mediator.get(spread, "articles", "p", ())
    assert (none.values, none.versions) == ({}, {})


async def test_a_new_incarnation_does_not_show_what_lingers_of_the_old(
    mediator: Service, spread: str
) -> None:
    route = mediator.mediator.data.model.databases[spread].classes["articles"]
    calls = mediator.mediator.data._calls
    await mediator.create(spread, "articles", "born", title="old", hits=7, body={"old": True})
    # The delete and the create reach the anchor only: what a crash between the steps leaves.
    for operation in (
        Delete(spread, "articles", "born", unique()),
        Create(spread, "articles", "born", unique(), values={"title": "new"}),
    ):
        await calls.write(plan_write(route, operation, {}).first)
    seen = await mediator.get(spread, "articles", "born")
    assert seen.values == {"title": "new"}
    assert seen.versions["hits"] is None


async def test_create_refuses_what_is_there(mediator: Service, either: str) -> None:
    await mediator.create(either, "articles", "twice", title="one")
    with pytest.raises(AlreadyExists):
        await mediator.create(either, "articles", "twice", title="two")
    assert await mediator.values(either, "articles", "twice") == {"title": "one"}


@pytest.mark.parametrize(
    ("kind", "condition", "error"),
    [
        (Update, Condition(), NotFound),
        (Update, PRESENT, PreconditionFailed),
        (Update, Condition(versions=({"main": 1},)), PreconditionFailed),
        (Delete, Condition(), NotFound),
        (Delete, PRESENT, PreconditionFailed),
        (Put, PRESENT, PreconditionFailed),
        (Put, Condition(versions=({"main": 1},)), PreconditionFailed),
        (Put, Condition(versions=({"main": 1}, {"main": 2})), PreconditionFailed),
        (ReadModifyWrite, Condition(), NotFound),
        (ReadModifyWrite, PRESENT, PreconditionFailed),
        (ReadModifyWrite, Condition(versions=({"main": 1},)), PreconditionFailed),
    ],
)
async def test_conditions_on_an_object_that_is_not_there(
    mediator: Service, either: str, kind: Any, condition: Condition, error: type[MediatorError]
) -> None:
    with pytest.raises(error):
        await mediator.mediator.data.write(
            kind(either, "articles", "nobody", unique(), condition=condition)
        )
    with pytest.raises(NotFound):
        await mediator.get(either, "articles", "nobody")


@pytest.mark.parametrize("kind", [Put, Update, Delete])
async def test_if_match_binds_to_the_versions_seen(
    mediator: Service, either: str, kind: Any
) -> None:
    id_ = unique()
    await mediator.create(either, "articles", id_, title="one", hits=1)
    seen = versions(await mediator.get(either, "articles", id_))
    await mediator.mediator.data.write(inc(either, "articles", id_))
    members = {} if kind is Delete else {"values": {"title": "two"}}
    stale = Condition(versions=(seen,))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(
            kind(either, "articles", id_, unique(), condition=stale, **members)
        )
    now = versions(await mediator.get(either, "articles", id_))
    several = Condition(versions=(seen, now))
    await mediator.mediator.data.write(
        kind(either, "articles", id_, unique(), condition=several, **members)
    )
    if kind is not Delete:
        values = await mediator.values(either, "articles", id_)
        assert values is not None
        assert values["title"] == "two"


async def test_if_match_on_one_group_leaves_the_others_free(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "g", title="t", hits=0)
    seen = versions(await mediator.get(spread, "articles", "g", ("title",)))
    await mediator.mediator.data.write(inc(spread, "articles", "g"))
    bound = Update(
        spread, "articles", "g", unique(), Condition(versions=(seen,)), values={"title": "new"}
    )
    await mediator.mediator.data.write(bound)
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(
            bound.__class__(
                spread,
                "articles",
                "g",
                unique(),
                Condition(versions=(seen,)),
                values={"title": "x"},
            )
        )


async def test_a_group_that_must_be_absent(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "abs", title="t")
    seen = versions(await mediator.get(spread, "articles", "abs"))
    assert None not in seen.values()
    wrong = Condition(versions=({**seen, "hits": None},))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(inc(spread, "articles", "abs", condition=wrong))


async def test_of_concurrent_writes_on_one_version_one_wins(mediator: Service, single: str) -> None:
    await mediator.create(single, "articles", "race", title="t", hits=0)
    seen = Condition(versions=(versions(await mediator.get(single, "articles", "race")),))
    writes = [inc(single, "articles", "race", condition=seen) for _ in range(16)]
    results = await asyncio.gather(
        *map(mediator.mediator.data.write, writes), return_exceptions=True
    )
    assert sum(isinstance(result, Outcome) for result in results) == 1
    assert sum(isinstance(result, PreconditionFailed) for result in results) == 15
    assert await mediator.values(single, "articles", "race") == {"title": "t", "hits": 1}


async def test_a_class_may_ask_for_if_match(mediator: Service) -> None:
    database = await mediator.put_schema({"articles": {**SPREAD, "require_if_match": True}})
    data = mediator.mediator.data
    await data.write(Put(database, "articles", "x", unique(), values={"title": "t", "hits": 0}))
    refused: list[Any] = [
        Put(database, "articles", "x", unique(), values={"title": "u"}),
        inc(database, "articles", "x"),
        Delete(database, "articles", "x", unique()),
        ReadModifyWrite(database, "articles", "x", unique(), compute=lambda d: {**d, "title": "u"}),
    ]
    for operation in refused:
        with pytest.raises(PreconditionRequired):
            await data.write(operation)
    assert all(isinstance(a, PreconditionRequired) for a in await data.batch(refused))
    seen = Condition(versions=(versions(await mediator.get(database, "articles", "x")),))
    await data.write(inc(database, "articles", "x", condition=seen))
    await data.write(inc(database, "articles", "x", condition=PRESENT))
    assert await mediator.values(database, "articles", "x") == {"title": "t", "hits": 2}


@pytest.mark.parametrize("name", ["title", "hits"])
async def test_concurrent_revisions_lose_nothing(mediator: Service, either: str, name: str) -> None:
    id_ = unique()
    await mediator.create(either, "articles", id_, title="", hits=0)

    def more(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, name: document[name] + ("x" if name == "title" else 1)}

    revisions = [
        ReadModifyWrite(either, "articles", id_, unique(), compute=more) for _ in range(32)
    ]
    await asyncio.gather(*map(mediator.mediator.data.write, revisions))
    values = await mediator.values(either, "articles", id_)
    assert values == {"title": "", "hits": 0, name: "x" * 32 if name == "title" else 32}


async def test_a_revision_that_changes_nothing_writes_nothing(
    mediator: Service, either: str
) -> None:
    id_ = unique()
    await mediator.create(either, "articles", id_, title="same", hits=1)
    before = versions(await mediator.get(either, "articles", id_))
    await mediator.mediator.data.write(ReadModifyWrite(either, "articles", id_, unique()))
    assert versions(await mediator.get(either, "articles", id_)) == before


async def test_a_repeated_operation_is_answered_and_not_repeated(
    mediator: Service, either: str
) -> None:
    id_ = unique()
    data = mediator.mediator.data
    create = Create(either, "articles", id_, unique(), fingerprint="f", values={"hits": 0})
    first = await data.write(create)
    again = await data.recall(create) or await data.write(create)
    assert (again.versions, again.created, again.replayed) == (first.versions, True, True)
    counted = inc(either, "articles", id_, operation=unique(), fingerprint="g")
    assert await data.recall(counted) is None
    once = await data.write(counted)
    twice = await data.write(counted)
    assert twice.replayed
    assert twice.values == once.values == {"hits": 1}
    assert await mediator.values(either, "articles", id_) == {"hits": 1}
    other = inc(either, "articles", id_, operation=counted.operation, fingerprint="h")
    with pytest.raises(IdempotencyReused):
        await data.recall(other)
    with pytest.raises(IdempotencyReused):
        await data.write(other)


async def test_a_batch_keeps_the_order_of_each_object(mediator: Service, either: str) -> None:
    id_ = unique()
    operations: list[Operation] = [
        Create(either, "articles", id_, unique(), values={"title": "t", "hits": 0}),
        inc(either, "articles", id_),
        Get(either, "articles", id_, ("hits",)),
        inc(either, "articles", id_),
        ReadModifyWrite(
            either, "articles", id_, unique(), compute=lambda d: {**d, "hits": d["hits"] * 10}
        ),
        Get(either, "articles", id_),
        Delete(either, "articles", id_, unique()),
        Get(either, "articles", id_),
        Get(either, "articles", "nobody"),
        Create(either, "articles", id_, unique(), values={"hits": 5}),
        Get(either, "articles", id_),
    ]
    answers = await mediator.mediator.data.batch(operations)
    seen = [a.values if isinstance(a, Outcome) else type(a) for a in answers]
    assert seen[2] == {"hits": 1}
    assert seen[5] == {"title": "t", "hits": 20}
    assert seen[7:9] == [NotFound, NotFound]
    assert seen[10] == {"hits": 5}


async def test_a_failure_in_a_batch_is_its_own(mediator: Service, either: str) -> None:
    one, two = unique(), unique()
    await mediator.create(either, "articles", one, hits=2**63 - 1)
    answers = await mediator.mediator.data.batch(
        [
            inc(either, "articles", one),
            Create(either, "articles", one, unique(), values={}),
            Create(either, "articles", two, unique(), values={"hits": 1}),
            inc(either, "nothing", one),
            inc(either, "articles", two),
        ]
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [OperatorRefused, AlreadyExists, Outcome, NotFound, Outcome]


async def test_a_thousand_operations(mediator: Service, spread: str) -> None:
    ids = [unique("bulk") for _ in range(10)]
    for id_ in ids:
        await mediator.create(spread, "articles", id_, title=id_, hits=0)
    answers = await mediator.mediator.data.batch(
        [inc(spread, "articles", ids[n % 10]) for n in range(1000)]
    )
    assert all(isinstance(answer, Outcome) for answer in answers)
    for id_ in ids:
        assert await mediator.values(spread, "articles", id_) == {"title": id_, "hits": 100}


async def test_a_system_that_is_down_fails_only_what_needs_it(
    mediator: Service, spread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mediator.create(spread, "articles", "down", title="t", hits=0)
    data = mediator.mediator.data
    redis = mediator.mediator.systems.get("redis").store

    async def away(calls: object) -> Any:
        raise StoreUnavailable("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(redis, "write", away)
        patched.setattr(redis, "read", away)
        answers = await data.batch(
            [
                inc(spread, "articles", "down"),
                inc(spread, "articles", "down"),
                Get(spread, "articles", "down", ("title",)),
                Get(spread, "articles", "down"),
                Update(spread, "articles", "down", unique(), values={"title": "up"}),
            ]
        )
    expected = [Unavailable, Unavailable, Outcome, Unavailable, Outcome]
    assert [type(answer) for answer in answers] == expected
    assert await mediator.values(spread, "articles", "down") == {"title": "up", "hits": 0}


async def test_a_listing_pages_through_a_class(mediator: Service, either: str) -> None:
    database = await mediator.put_schema(
        {"articles": SPREAD if len(mediator.systems_of(either, "articles")) > 1 else ON_ONE}
    )
    data = mediator.mediator.data
    for n in range(7):
        await mediator.create(database, "articles", f"a{n}", title=f"t{n}", hits=n % 3)
    everything = Query(database, "articles", limit=3)
    ids = [item.outcome.id for item in await _pages(data, everything)]
    assert ids == [f"a{n}" for n in range(7)]
    ranking = Query(database, "articles", order=(OrderBy(("hits",), descending=True),), limit=2)
    seen: list[tuple[Any, str]] = []
    for item in await _pages(data, ranking):
        values = item.outcome.values
        assert values is not None
        assert values["title"] == f"t{item.outcome.id[1:]}"
        seen.append((values["hits"], item.outcome.id))
    assert seen == sorted(((n % 3, f"a{n}") for n in range(7)), reverse=True)


async def _pages(data: DataPlane, query: Query) -> list[Item]:
    """Return what all pages of a query hold."""
    items: list[Item] = []
    while True:
        answer = await data.query(query)
        assert len(answer.items) <= query.limit
        items += answer.items
        if answer.next is None:
            return items
        query = replace(query, after=answer.next)


async def test_an_advisory_database_holds_no_data(mediator: Service) -> None:
    database = await mediator.put_schema({"articles": ON_ONE}, mode="advisory")
    with pytest.raises(AdvisoryOnly):
        await mediator.get(database, "articles", "x")


async def test_operators_on_two_systems_are_refused_as_a_whole(mediator: Service) -> None:
    fields = {"one": field_on("postgres", "integer"), "two": field_on("redis", "integer")}
    fields["two"]["group"] = "two"
    database = await mediator.put_schema({"pairs": {"fields": fields}})
    assert len(mediator.systems_of(database, "pairs")) == 2
    most = 2**63 - 1
    for full, id_ in (("one", "a"), ("two", "b")):
        start = {"one": 0, "two": 0, full: most}
        await mediator.create(database, "pairs", id_, **start)
        both = Update(
            database,
            "pairs",
            id_,
            unique(),
            operators=tuple(OperatorCall(name, Operator.INC, 1) for name in fields),
        )
        with pytest.raises(OperatorRefused) as caught:
            await mediator.mediator.data.write(both)
        assert caught.value.locations[0].pointer == f"/{full}"
        assert await mediator.values(database, "pairs", id_) == start
