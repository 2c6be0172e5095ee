"""Missing required fields are filled with their defaults, without overwriting values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pytest

from mediator.control import backfill
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.data_plane.port import PAGE, pages
from mediator.model.operations import Create, Get, Outcome, Update
from mediator.routing.model import ClassRoute
from tests.process.service import Service, field_on, unique

SYSTEMS: Final = ("redis", "postgres", "mongo")


def notes(**fields: Any) -> dict[str, Any]:
    return {"classes": {"notes": {"fields": fields}}}


async def change_schema(
    mediator: Service, database: str, document: Any, **members: Any
) -> SchemaChange:
    options = ChangeOptions(backfill=True, unchecked=members.pop("unchecked", False))
    return await mediator.mediator.control.set_schema(
        database, document, options=options, **members
    )


def required(system: str, default: Any, type_: str = "string", **members: Any) -> dict[str, Any]:
    return field_on(system, type_, required=True, default=default, **members)


async def fill(mediator: Service, database: str, count: int = 3) -> None:
    values: list[dict[str, Any]] = [{"title": f"t{number}"} for number in range(count)]
    creations = [
        Create(database, "notes", f"{number:05}", unique(), values=object_)
        for number, object_ in enumerate(values)
    ]
    assert all(isinstance(o, Outcome) for o in await mediator.mediator.data.batch(creations))


@pytest.mark.parametrize("system", SYSTEMS)
async def test_objects_get_the_defaults_of_required_fields(mediator: Service, system: str) -> None:
    title = field_on(system)
    loose = notes(title=title, size=field_on(system, "integer"))
    loose["classes"]["notes"]["require_if_match"] = True
    name = await mediator.put_schema(loose["classes"])
    await mediator.create(name, "notes", "none", title="a")
    await mediator.create(name, "notes", "null", title="b", size=None)
    await mediator.create(name, "notes", "five", title="c", size=5)
    tight = notes(
        title=title,
        size=required(system, 7, "integer"),
        token=required(system, "uuid"),
        made=required(system, "now", "timestamp"),
        tags=required(system, ["x"], "list", items="string"),
    )
    tight["classes"]["notes"]["require_if_match"] = True
    dry = await change_schema(mediator, name, tight, dry_run=True)
    assert (dry.violations, (await mediator.values(name, "notes", "none"))) == ((), {"title": "a"})
    change = await change_schema(mediator, name, tight)
    assert (change.version, change.violations, change.notes) == (2, (), dry.notes)
    objects = {
        id_: await mediator.values(name, "notes", id_) or {} for id_ in ("none", "null", "five")
    }
    assert [object_["size"] for object_ in objects.values()] == [7, 7, 5]
    assert [object_["title"] for object_ in objects.values()] == ["a", "b", "c"]
    assert len({object_["token"] for object_ in objects.values()}) == 3
    assert all(isinstance(object_["made"], datetime) for object_ in objects.values())
    assert all(object_["tags"] == ["x"] for object_ in objects.values())
    before = await mediator.get(name, "notes", "none")
    assert (await change_schema(mediator, name, tight)).violations == ()
    assert (await mediator.get(name, "notes", "none")).versions == before.versions, "unchanged"


async def test_a_large_class_on_several_systems_is_backfilled(mediator: Service) -> None:
    loose = {"title": field_on("redis"), "size": field_on("postgres", "integer", group="size")}
    name = await mediator.put_schema(notes(**loose)["classes"])
    assert len(mediator.systems_of(name, "notes")) == 2
    await fill(mediator, name, PAGE + 5)
    more = required("postgres", 1, "integer", group="size")
    assert (await change_schema(mediator, name, notes(**loose, more=more))).violations == ()
    objects = [o async for page in pages(mediator.mediator.data, name, "notes") for o in page]
    assert len(objects) == PAGE + 5
    assert all((o.values or {})["more"] == 1 for o in objects)


async def test_a_required_field_without_default_still_refuses_or_is_reported(
    mediator: Service,
) -> None:
    title = field_on("redis")
    name = await mediator.put_schema(notes(title=title)["classes"])
    await fill(mediator, name)
    tight = notes(title=title, a=required("redis", "x"), b=field_on("redis", required=True))
    dry = await change_schema(mediator, name, tight, dry_run=True)
    assert [violation["location"] for violation in dry.violations] == ["/classes/notes/fields/b"]
    change = await change_schema(mediator, name, tight, unchecked=True)
    assert (change.version, change.violations) == (2, ())
    assert await mediator.values(name, "notes", "00000") == {"title": "t0", "a": "x"}


async def test_a_backfill_that_was_cut_short_resumes_with_the_next_request(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = field_on("redis")
    name = await mediator.put_schema(notes(title=title)["classes"])
    await fill(mediator, name)
    tight = notes(title=title, a=required("redis", "x"))
    with monkeypatch.context() as patched:
        patched.setattr(backfill, "BACKFILL_S", 0.0)
        [violation] = (await change_schema(mediator, name, tight)).violations
    assert (violation["constraint"], violation["count"]) == ("required", 3)
    assert (await change_schema(mediator, name, tight)).violations == ()
    assert await mediator.values(name, "notes", "00002") == {"title": "t2", "a": "x"}


@pytest.mark.parametrize("group", ["main", "young"])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_value_that_is_written_meanwhile_is_kept(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str, group: str
) -> None:
    """Also in a cache group that the object lacked, which has no version."""
    title = field_on(system)
    name = await mediator.put_schema(notes(title=title)["classes"])
    await fill(mediator, name, 1)
    data, values_to_write = mediator.mediator.data, ["mine"]
    read_now = data.read_now

    async def read_then_write(route: ClassRoute, operation: Get, **members: Any) -> Outcome:
        outcome = await read_now(route, operation, **members)
        while values_to_write:
            values: dict[str, Any] = {"a": values_to_write.pop()}
            await data.write(Update(name, "notes", operation.id, unique(), values=values))
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(data, "read_now", read_then_write)
        await change_schema(
            mediator, name, notes(title=title, a=required(system, "x", group=group))
        )
    assert not values_to_write
    assert await mediator.values(name, "notes", "00000") == {"title": "t0", "a": "mine"}
