"""Classes that move to another system during writes, and moves that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import (
    Conflict,
    DataWouldMove,
    NotFound,
    Unavailable,
)
from mediator.catalogue.stored_databases import Moment, StoredDatabase
from mediator.model.operations import Create, Delete, Outcome
from tests.process.control.classes import class_on
from tests.process.service import Service, field_on, unique


async def test_a_write_is_never_lost_to_a_class_that_moves(mediator: Service) -> None:
    control, data = mediator.mediator.control, mediator.mediator.data
    name = await mediator.put_schema({"notes": class_on("redis")})
    acknowledged: list[str] = []
    ended = asyncio.Event()

    async def write() -> None:
        while not ended.is_set():
            id_ = unique()
            try:
                operation = Create(name, "notes", id_, unique(), values={"title": id_})
                await data.write(operation)
                acknowledged.append(id_)
            except Unavailable:
                await asyncio.sleep(0)

    async def move() -> None:
        for target in ("mongo", "postgres", "redis") * 2:
            try:
                await control.set_schema(name, {"classes": {"notes": class_on(target)}})
            except (DataWouldMove, Conflict):
                break
        ended.set()

    await asyncio.gather(move(), *(write() for _ in range(4)))
    for id_ in acknowledged:
        assert await mediator.values(name, "notes", id_) == {"title": id_}


@pytest.mark.parametrize("system", ["redis", "mongo", "postgres"])
async def test_fields_of_an_empty_class_get_other_types(mediator: Service, system: str) -> None:
    def notes(type_: str, **members: Any) -> dict[str, Any]:
        return {"notes": {"fields": {"title": field_on(system, type_, index=True, **members)}}}

    control = mediator.mediator.control
    name = await mediator.put_schema(notes("integer"))
    created = await mediator.create(name, "notes", unique(), title=7)
    await mediator.mediator.data.write(Delete(name, "notes", created.id, unique()))
    for type_, value in (("string", "seven"), ("boolean", True), ("integer", 8)):
        await control.set_schema(name, {"classes": notes(type_)})
        id_ = unique()
        await mediator.create(name, "notes", id_, title=value)
        assert await mediator.values(name, "notes", id_) == {"title": value}
        await mediator.mediator.data.write(Delete(name, "notes", id_, unique()))


async def test_writes_to_a_class_that_moves_are_held_until_it_has_moved(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema({"notes": class_on("redis"), "rest": class_on("redis")})
    catalogue = mediator.mediator.stored_schemas
    put = catalogue.put

    async def write_then_put(*change: Any) -> tuple[Moment, StoredDatabase]:
        with pytest.raises(Unavailable):
            await mediator.create(name, "notes", "early", title="t")
        results = await mediator.mediator.data.batch(
            [Create(name, c, "x", unique(), values={"title": "t"}) for c in ("notes", "rest")]
        )
        assert [type(result) for result in results] == [Unavailable, Outcome]
        return await put(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", write_then_put)
        classes = {"notes": class_on("mongo"), "rest": class_on("redis")}
        await mediator.mediator.control.set_schema(name, {"classes": classes})
    await mediator.create(name, "notes", "late", title="t")
    assert mediator.systems_of(name, "notes") == ("mongo",)


async def test_a_failed_change_lets_writes_go_on(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})
    catalogue = mediator.mediator.stored_schemas

    async def fail(*change: object) -> int:
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", fail)
        with pytest.raises(Unavailable):
            await control.set_schema(name, {"classes": {"notes": class_on("mongo")}})
    await mediator.create(name, "notes", "x", title="t")
    assert mediator.systems_of(name, "notes") == ("redis",)


async def test_a_change_whose_answer_was_lost_is_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": class_on("redis")})
    catalogue = mediator.mediator.stored_schemas
    put = catalogue.put

    async def put_and_fail(*change: Any) -> int:
        await put(*change)
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", put_and_fail)
        with pytest.raises(Unavailable):
            await control.set_schema(name, {"classes": {"notes": class_on("mongo")}})
    assert mediator.systems_of(name, "notes") == ("mongo",)
    await mediator.create(name, "notes", "x", title="t")


async def test_a_removal_that_was_cut_short_can_be_repeated(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    classes = {"a": class_on("redis"), "b": class_on("mongo"), "c": class_on("postgres")}
    name = await mediator.put_schema(classes)
    catalogue = mediator.mediator.stored_schemas

    async def fail(database: object) -> int:
        raise Unavailable("The catalogue does not answer.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "remove", fail)
        with pytest.raises(Unavailable):
            await control.delete_schema(name)
    await control.delete_schema(name)
    with pytest.raises(NotFound):
        await control.schema(name)
