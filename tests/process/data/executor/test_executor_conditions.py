"""The executor over the real stores: conditions of writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import (
    AlreadyExists,
    MediatorError,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
)
from mediator.model.operations import (
    Condition,
    Delete,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
)
from tests.process.data.executor.executed import PRESENT, SPREAD, versions
from tests.process.service import Service, inc, unique


async def test_create_refuses_an_existing_object(mediator: Service, either: str) -> None:
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
async def test_conditions_on_a_missing_object(
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
    old_versions = versions(await mediator.get(either, "articles", id_))
    await mediator.mediator.data.write(inc(either, "articles", id_))
    members = {} if kind is Delete else {"values": {"title": "two"}}
    stale = Condition(versions=(old_versions,))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(
            kind(either, "articles", id_, unique(), condition=stale, **members)
        )
    new_versions = versions(await mediator.get(either, "articles", id_))
    several = Condition(versions=(old_versions, new_versions))
    await mediator.mediator.data.write(
        kind(either, "articles", id_, unique(), condition=several, **members)
    )
    if kind is not Delete:
        values = await mediator.values(either, "articles", id_)
        assert values is not None
        assert values["title"] == "two"


async def test_if_match_on_one_group_leaves_the_others_free(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "g", title="t", hits=0)
    old_versions = versions(await mediator.get(spread, "articles", "g", ("title",)))
    await mediator.mediator.data.write(inc(spread, "articles", "g"))
    update = Update(
        spread,
        "articles",
        "g",
        unique(),
        Condition(versions=(old_versions,)),
        values={"title": "new"},
    )
    await mediator.mediator.data.write(update)
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(
            update.__class__(
                spread,
                "articles",
                "g",
                unique(),
                Condition(versions=(old_versions,)),
                values={"title": "x"},
            )
        )


async def test_a_group_that_must_be_absent(mediator: Service, spread: str) -> None:
    await mediator.create(spread, "articles", "abs", title="t")
    present_versions = versions(await mediator.get(spread, "articles", "abs"))
    assert None not in present_versions.values()
    wrong = Condition(versions=({**present_versions, "hits": None},))
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(inc(spread, "articles", "abs", condition=wrong))


async def test_of_concurrent_writes_on_one_version_one_wins(mediator: Service, single: str) -> None:
    await mediator.create(single, "articles", "race", title="t", hits=0)
    condition = Condition(versions=(versions(await mediator.get(single, "articles", "race")),))
    writes = [inc(single, "articles", "race", condition=condition) for _ in range(16)]
    results = await asyncio.gather(
        *map(mediator.mediator.data.write, writes), return_exceptions=True
    )
    assert sum(isinstance(result, Outcome) for result in results) == 1
    assert sum(isinstance(result, PreconditionFailed) for result in results) == 15
    assert await mediator.values(single, "articles", "race") == {"title": "t", "hits": 1}


async def test_a_class_may_require_if_match(mediator: Service) -> None:
    database = await mediator.put_schema({"articles": {**SPREAD, "require_if_match": True}})
    data = mediator.mediator.data
    await data.write(Put(database, "articles", "x", unique(), values={"title": "t", "hits": 0}))
    unconditional: list[Any] = [
        Put(database, "articles", "x", unique(), values={"title": "u"}),
        inc(database, "articles", "x"),
        Delete(database, "articles", "x", unique()),
        ReadModifyWrite(database, "articles", "x", unique(), compute=lambda d: {**d, "title": "u"}),
    ]
    for operation in unconditional:
        with pytest.raises(PreconditionRequired):
            await data.write(operation)
    assert all(isinstance(a, PreconditionRequired) for a in await data.batch(unconditional))
    condition = Condition(versions=(versions(await mediator.get(database, "articles", "x")),))
    await data.write(inc(database, "articles", "x", condition=condition))
    await data.write(inc(database, "articles", "x", condition=PRESENT))
    assert await mediator.values(database, "articles", "x") == {"title": "t", "hits": 2}
