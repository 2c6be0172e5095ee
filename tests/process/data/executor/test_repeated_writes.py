"""Repetitions of writes that are read, computed and written get the first answer."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import IdempotencyReused, Invalid, NotFound, PreconditionFailed
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Delete,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from tests.process.data.executor.executed import versions
from tests.process.service import Service, field_on, unique


def head(database: str, id_: str, condition: Condition = ANYTHING) -> dict[str, Any]:
    """Return the members of an operation with an idempotency key."""
    return {
        "database": database,
        "class_name": "articles",
        "id": id_,
        "operation": unique("op"),
        "condition": condition,
        "fingerprint": "f",
    }


async def send_twice(
    mediator: Service, operation: WriteOperation, between: WriteOperation
) -> tuple[Outcome, Outcome]:
    """Send a write, another one `between`, and the repetition in a batch; return both answers."""
    data = mediator.mediator.data
    first = await data.write(operation)
    await data.write(between)
    [repeated] = await data.batch([operation])
    assert isinstance(repeated, Outcome), repeated
    return first, repeated


def check_same(first: Outcome, repeated: Outcome) -> None:
    assert repeated.replayed
    assert not first.replayed
    assert (repeated.values, repeated.versions) == (first.values, first.versions)


async def test_a_revision_is_computed_once(mediator: Service, single: str) -> None:
    id_ = unique()
    await mediator.create(single, "articles", id_, title="x", hits=0)

    def compute(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "title": document["title"] + "y"}

    revision = ReadModifyWrite(**head(single, id_), compute=compute)
    other = Update(single, "articles", id_, unique(), values={"title": "z"})
    check_same(*await send_twice(mediator, revision, other))
    assert await mediator.values(single, "articles", id_) == {"title": "z", "hits": 0}


@pytest.mark.parametrize("is_bound", [False, True])
async def test_a_revision_that_refuses_its_own_result_is_not_recomputed(
    mediator: Service, single: str, is_bound: bool
) -> None:
    id_ = unique()
    await mediator.create(single, "articles", id_, title="x", hits=0)

    def compute(document: dict[str, Any]) -> dict[str, Any]:
        if document["title"] != "x":
            raise Invalid("The test fails.")
        return {**document, "title": "y"}

    present_versions = versions(await mediator.get(single, "articles", id_))
    condition = Condition(versions=(present_versions,)) if is_bound else ANYTHING
    revision = ReadModifyWrite(**head(single, id_, condition), compute=compute)
    other = Update(single, "articles", id_, unique(), values={"hits": 1})
    check_same(*await send_twice(mediator, revision, other))


async def test_a_revision_of_an_object_that_is_gone_is_answered(
    mediator: Service, single: str
) -> None:
    id_ = unique()
    await mediator.create(single, "articles", id_, title="x", hits=0)
    revision = ReadModifyWrite(**head(single, id_), compute=lambda old: {**old, "title": "y"})
    check_same(*await send_twice(mediator, revision, Delete(single, "articles", id_, unique())))
    with pytest.raises(NotFound):
        await mediator.get(single, "articles", id_)


@pytest.mark.parametrize("kind", [Put, Update, Delete])
async def test_a_write_on_one_of_several_versions_is_answered(
    mediator: Service, single: str, kind: Any
) -> None:
    id_ = unique()
    await mediator.create(single, "articles", id_, title="x", hits=0)
    present_versions = versions(await mediator.get(single, "articles", id_))
    either = Condition(versions=({"main": 1}, present_versions))
    members = {} if kind is Delete else {"values": {"title": "y"}}
    operation = kind(**head(single, id_, either), **members)
    other = Put(single, "articles", id_, unique(), values={"title": "z"})
    check_same(*await send_twice(mediator, operation, other))
    assert await mediator.values(single, "articles", id_) == {"title": "z"}
    with pytest.raises(PreconditionFailed):
        await mediator.mediator.data.write(kind(**head(single, id_, either), **members))


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_an_update_of_a_part_of_a_unique_key_is_answered(
    mediator: Service, system: str
) -> None:
    fields = {"title": field_on(system, index=True), "year": field_on(system, "integer")}
    database = await mediator.put_schema(
        {"articles": {"fields": fields, "unique": [["title", "year"]]}}
    )
    await mediator.create(database, "articles", "a", title="x", year=1)
    update = Update(**head(database, "a"), values={"title": "y"})
    check_same(*await send_twice(mediator, update, Delete(database, "articles", "a", unique())))


async def test_a_key_of_another_revision_is_refused_before_it_is_computed(
    mediator: Service, single: str
) -> None:
    id_ = unique()
    await mediator.create(single, "articles", id_, title="x", hits=0)
    revision = ReadModifyWrite(**head(single, id_), compute=lambda old: {**old, "title": "y"})
    await mediator.mediator.data.write(revision)
    other = ReadModifyWrite(
        single, "articles", id_, revision.operation, fingerprint="g", compute=lambda old: old
    )
    with pytest.raises(IdempotencyReused):
        await mediator.mediator.data.write(other)
