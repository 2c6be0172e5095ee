"""The executor over the real stores: operations over one system and over several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import (
    AdvisoryOnly,
    IdempotencyReused,
    NotFound,
)
from mediator.model.operations import (
    ANYTHING,
    Create,
    Delete,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.routing.fragments import plan_write
from tests.process.data.executor.executed import ON_ONE, versions
from tests.process.service import Service, inc, unique


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


async def test_a_put_replaces_every_fragment(mediator: Service, spread: str) -> None:
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
    projection = await mediator.get(spread, "articles", "p", ("hits", "title"))
    assert projection.values == {"hits": 3, "title": "t"}
    assert set(projection.systems) == {"redis", "postgres"}
    empty = await mediator.get(spread, "articles", "p", ())
    assert (empty.values, empty.versions) == ({}, {})


async def test_a_recreated_object_shows_nothing_of_the_deleted_one(
    mediator: Service, spread: str
) -> None:
    route = mediator.mediator.data.model.databases[spread].classes["articles"]
    calls = mediator.mediator.calls
    await mediator.create(spread, "articles", "born", title="old", hits=7, body={"old": True})
    # The delete and the create reach the anchor only, as after a crash between the steps.
    for operation in (
        Delete(spread, "articles", "born", unique()),
        Create(spread, "articles", "born", unique(), values={"title": "new"}),
    ):
        await calls.write(plan_write(route, operation, {}).first)
    outcome = await mediator.get(spread, "articles", "born")
    assert outcome.values == {"title": "new"}
    assert outcome.versions["hits"] is None


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", ["title", "hits"])
async def test_concurrent_revisions_lose_nothing(mediator: Service, either: str, name: str) -> None:
    id_ = unique()
    await mediator.create(either, "articles", id_, title="", hits=0)

    def append(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, name: document[name] + ("x" if name == "title" else 1)}

    revisions = [
        ReadModifyWrite(either, "articles", id_, unique(), compute=append) for _ in range(32)
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


@pytest.mark.parametrize("kind", ["revision", "update"])
async def test_a_repetition_of_an_empty_change_leaves_later_writes_alone(
    mediator: Service, either: str, kind: str
) -> None:
    """A's write changes nothing; B writes; A, who got no answer, retries."""
    id_, data = unique(), mediator.mediator.data
    await mediator.create(either, "articles", id_, title="open", hits=1)
    before = versions(await mediator.get(either, "articles", id_))

    def make_write(operation: str, fingerprint: str) -> WriteOperation:
        head = (either, "articles", id_, operation, ANYTHING, fingerprint)
        if kind == "update":
            return Update(*head)
        return ReadModifyWrite(*head, compute=lambda now: {**now, "title": "open"})

    operation = make_write(unique(), "f")
    first = await data.write(operation)
    assert (versions(first), first.values) == (before, {"title": "open", "hits": 1})
    assert versions(await mediator.get(either, "articles", id_)) == before
    later = Update(either, "articles", id_, unique(), values={"title": "closed"})
    await data.write(later)
    repeated = await data.recall(operation) or await data.write(operation)
    assert (repeated.replayed, repeated.values, repeated.versions) == (
        True,
        first.values,
        first.versions,
    )
    assert await mediator.values(either, "articles", id_) == {"title": "closed", "hits": 1}
    other = make_write(operation.operation, "g")
    with pytest.raises(IdempotencyReused):
        await data.recall(other) or await data.write(other)


async def test_a_repeated_operation_is_answered_and_not_repeated(
    mediator: Service, either: str
) -> None:
    id_ = unique()
    data = mediator.mediator.data
    create = Create(either, "articles", id_, unique(), fingerprint="f", values={"hits": 0})
    first = await data.write(create)
    repeated = await data.recall(create) or await data.write(create)
    assert (repeated.versions, repeated.created, repeated.replayed) == (first.versions, True, True)
    increment = inc(either, "articles", id_, operation=unique(), fingerprint="g")
    assert await data.recall(increment) is None
    once = await data.write(increment)
    twice = await data.write(increment)
    assert twice.replayed
    assert twice.values == once.values == {"hits": 1}
    assert await mediator.values(either, "articles", id_) == {"hits": 1}
    other = inc(either, "articles", id_, operation=increment.operation, fingerprint="h")
    with pytest.raises(IdempotencyReused):
        await data.recall(other)
    with pytest.raises(IdempotencyReused):
        await data.write(other)


async def test_an_advisory_database_holds_no_data(mediator: Service) -> None:
    database = await mediator.put_schema({"articles": ON_ONE}, mode="advisory")
    with pytest.raises(AdvisoryOnly):
        await mediator.get(database, "articles", "x")
