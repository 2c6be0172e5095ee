"""The executor over the real stores: batches, listings, and systems that are down."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import (
    AlreadyExists,
    NotFound,
    OperatorRefused,
    Unavailable,
)
from mediator.model.operations import (
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    ReadModifyWrite,
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import OrderBy, Query
from mediator.stores.port import StoreUnavailable
from tests.process.data.executor.executed import ON_ONE, SPREAD, pages
from tests.process.service import Service, field_on, inc, unique


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
    results = [a.values if isinstance(a, Outcome) else type(a) for a in answers]
    assert results[2] == {"hits": 1}
    assert results[5] == {"title": "t", "hits": 20}
    assert results[7:9] == [NotFound, NotFound]
    assert results[10] == {"hits": 5}


async def test_a_failed_operation_does_not_fail_its_batch(mediator: Service, either: str) -> None:
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


@pytest.mark.usefixtures("patient")
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


async def test_a_system_that_is_down_fails_only_operations_that_need_it(
    mediator: Service, spread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mediator.create(spread, "articles", "down", title="t", hits=0)
    data = mediator.mediator.data
    redis = mediator.mediator.systems.get("redis").store

    async def fail(calls: object) -> Any:
        raise StoreUnavailable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(redis, "write", fail)
        patch.setattr(redis, "read", fail)
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
    ids = [item.outcome.id for item in await pages(data, everything)]
    assert ids == [f"a{n}" for n in range(7)]
    ranking = Query(database, "articles", order=(OrderBy(("hits",), descending=True),), limit=2)
    ranks: list[tuple[Any, str]] = []
    for item in await pages(data, ranking):
        values = item.outcome.values
        assert values is not None
        assert values["title"] == f"t{item.outcome.id[1:]}"
        ranks.append((values["hits"], item.outcome.id))
    assert ranks == sorted(((n % 3, f"a{n}") for n in range(7)), reverse=True)


async def test_operators_on_two_systems_are_refused_as_a_whole(mediator: Service) -> None:
    fields = {"one": field_on("postgres", "integer"), "two": field_on("redis", "integer")}
    fields["two"]["group"] = "two"
    database = await mediator.put_schema({"pairs": {"fields": fields}})
    assert len(mediator.systems_of(database, "pairs")) == 2
    maximum = 2**63 - 1
    for full, id_ in (("one", "a"), ("two", "b")):
        start = {"one": 0, "two": 0, full: maximum}
        await mediator.create(database, "pairs", id_, **start)
        update = Update(
            database,
            "pairs",
            id_,
            unique(),
            operators=tuple(OperatorCall(name, Operator.INC, 1) for name in fields),
        )
        with pytest.raises(OperatorRefused) as caught:
            await mediator.mediator.data.write(update)
        assert caught.value.locations[0].pointer == f"/{full}"
        assert await mediator.values(database, "pairs", id_) == start
