"""Required fields that objects lack get their default, by writes that replace nothing."""

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


async def changed(of: Service, database: str, document: Any, **members: Any) -> SchemaChange:
    options = ChangeOptions(backfill=True, unchecked=members.pop("unchecked", False))
    return await of.mediator.control.set_schema(database, document, options=options, **members)


def required(system: str, default: Any, type_: str = "string", **members: Any) -> dict[str, Any]:
    return field_on(system, type_, required=True, default=default, **members)


async def filled(of: Service, database: str, count: int = 3) -> None:
    values: list[dict[str, Any]] = [{"title": f"t{number}"} for number in range(count)]
    creations = [
        Create(database, "notes", f"{number:05}", unique(), values=each)
        for number, each in enumerate(values)
    ]
    assert all(isinstance(o, Outcome) for o in await of.mediator.data.batch(creations))


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
    dry = await changed(mediator, name, tight, dry_run=True)
    assert (dry.violations, (await mediator.values(name, "notes", "none"))) == ((), {"title": "a"})
    change = await changed(mediator, name, tight)
    assert (change.version, change.violations, change.notes) == (2, (), dry.notes)
    found = {
        id_: await mediator.values(name, "notes", id_) or {} for id_ in ("none", "null", "five")
    }
    assert [each["size"] for each in found.values()] == [7, 7, 5]
    assert [each["title"] for each in found.values()] == ["a", "b", "c"]
    assert len({each["token"] for each in found.values()}) == 3
    assert all(isinstance(each["made"], datetime) for each in found.values())
    assert all(each["tags"] == ["x"] for each in found.values())
    before = await mediator.get(name, "notes", "none")
    assert (await changed(mediator, name, tight)).violations == ()
    assert (await mediator.get(name, "notes", "none")).versions == before.versions, "left alone"


async def test_a_large_class_on_several_systems_is_backfilled(mediator: Service) -> None:
    loose = {"title": field_on("redis"), "size": field_on("postgres", "integer", group="size")}
    name = await mediator.put_schema(notes(**loose)["classes"])
    assert len(mediator.systems_of(name, "notes")) == 2
    await filled(mediator, name, PAGE + 5)
    more = required("postgres", 1, "integer", group="size")
    assert (await changed(mediator, name, notes(**loose, more=more))).violations == ()
    objects = [o async for page in pages(mediator.mediator.data, name, "notes") for o in page]
    assert len(objects) == PAGE + 5
    assert all((o.values or {})["more"] == 1 for o in objects)


async def test_what_has_no_default_still_refuses_or_is_reported(mediator: Service) -> None:
    title = field_on("redis")
    name = await mediator.put_schema(notes(title=title)["classes"])
    await filled(mediator, name)
    tight = notes(title=title, a=required("redis", "x"), b=field_on("redis", required=True))
    dry = await changed(mediator, name, tight, dry_run=True)
    assert [each["location"] for each in dry.violations] == ["/classes/notes/fields/b"]
    change = await changed(mediator, name, tight, unchecked=True)
    assert (change.version, change.violations) == (2, ())
    assert await mediator.values(name, "notes", "00000") == {"title": "t0", "a": "x"}


async def test_a_backfill_that_was_cut_short_goes_on_with_the_next_request(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = field_on("redis")
    name = await mediator.put_schema(notes(title=title)["classes"])
    await filled(mediator, name)
    tight = notes(title=title, a=required("redis", "x"))
    with monkeypatch.context() as patched:
        patched.setattr(backfill, "BACKFILL_S", 0.0)
        [left] = (await changed(mediator, name, tight)).violations
    assert (left["constraint"], left["count"]) == ("required", 3)
    assert (await changed(mediator, name, tight)).violations == ()
    assert await mediator.values(name, "notes", "00002") == {"title": "t2", "a": "x"}


@pytest.mark.parametrize("group", ["main", "young"])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_value_that_is_written_meanwhile_is_kept(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str, group: str
) -> None:
    """In a group that the object has not had so far, too, which has no version."""
    title = field_on(system)
    name = await mediator.put_schema(notes(title=title)["classes"])
    await filled(mediator, name, 1)
    data, meanwhile = mediator.mediator.data, ["mine"]
    read_now = data.read_now

    async def slow(route: ClassRoute, operation: Get, **members: Any) -> Outcome:
        outcome = await read_now(route, operation, **members)
        while meanwhile:
            values: dict[str, Any] = {"a": meanwhile.pop()}
            await data.write(Update(name, "notes", operation.id, unique(), values=values))
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(data, "read_now", slow)
        await changed(mediator, name, notes(title=title, a=required(system, "x", group=group)))
    assert not meanwhile
    assert await mediator.values(name, "notes", "00000") == {"title": "t0", "a": "mine"}
