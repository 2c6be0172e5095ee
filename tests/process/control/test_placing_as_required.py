"""Systems that a schema requires by name, on the three real servers."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import DataWouldMove, Location, SchemaInvalid, Unplaceable
from tests.process.service import Service, field_on

FIELDS = {
    "title": field_on("postgres"),
    "hits": {**field_on("redis", "integer"), "system": "mongo"},
    "note": {"type": "string"},
}


async def test_objects_are_on_the_systems_that_are_required(
    mediator: Service, replica: Service
) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": {"system": "redis", "fields": FIELDS}})
    assert mediator.systems_of(name, "notes") == ("redis", "mongo")
    await mediator.create(name, "notes", "x", title="t", hits=1, note="n")
    for plane in (mediator, replica):
        described = await plane.mediator.control.schema(name)
        assert described.document["classes"]["notes"]["system"] == "redis"
        assert described.document["classes"]["notes"]["fields"]["hits"]["system"] == "mongo"
        assert await plane.values(name, "notes", "x") == {"title": "t", "hits": 1, "note": "n"}
    hits = (await control.explain(name, "notes", "hits"))["why"]
    title = (await control.explain(name, "notes", "title"))["why"]
    assert hits.startswith("notes.hits requires the system mongo, though redis would score 1,000 ")
    assert title.startswith("notes requires the system redis, though postgres would score ")
    assert hits in described.notes
    assert any(
        note.startswith("notes requires the system redis, though") for note in described.notes
    )


async def test_data_is_not_moved_by_a_requirement(mediator: Service) -> None:
    control = mediator.mediator.control
    name = await mediator.put_schema({"notes": {"fields": FIELDS}})
    moved: dict[str, Any] = {"classes": {"notes": {"system": "redis", "fields": FIELDS}}}
    await mediator.create(name, "notes", "x", title="t", note="n")
    with pytest.raises(DataWouldMove) as refused:
        await control.set_schema(name, moved)
    assert refused.value.extra["plan"][0] == {
        "node": "notes",
        "from": "postgres",
        "to": "redis",
        "reason": "notes requires the system redis",
    }
    dry_run = await control.set_schema(name, moved, dry_run=True)
    assert {move["node"] for move in dry_run.moves} == {"notes", "notes.title", "notes.note"}
    # The current system can be required.
    present = {"classes": {"notes": {"system": "postgres", "fields": FIELDS}}}
    assert (await control.set_schema(name, present)).version == 2
    assert await mediator.values(name, "notes", "x") == {"title": "t", "note": "n"}


@pytest.mark.parametrize(
    ("class_", "pointer", "detail"),
    [
        (
            {"system": "mongodb"},
            "/classes/notes/system",
            'there is no system mongodb; known: mongo, postgres, redis; did you mean "mongo"?',
        ),
        (
            {"fields": {"title": {"type": "string", "system": "oracle"}}},
            "/classes/notes/fields/title/system",
            "there is no system oracle; known: mongo, postgres, redis",
        ),
    ],
)
async def test_an_unknown_system_is_refused_with_its_location(
    mediator: Service, class_: dict[str, Any], pointer: str, detail: str
) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        await mediator.put_schema({"notes": class_})
    assert refused.value.locations == (Location(pointer, detail),)


async def test_a_system_that_lacks_what_is_required_is_refused(mediator: Service) -> None:
    control = mediator.mediator.control
    joined = {"annotations": [{"require": "joins"}], "system": "mongo", "fields": FIELDS}
    await control.amend("postgres", declared=["joins"])
    with pytest.raises(Unplaceable) as refused:
        await mediator.put_schema({"notes": joined})
    await control.amend("postgres", declared=[])
    assert refused.value.locations == (
        Location("/classes/notes/system", "mongo lacks joins, required by notes"),
    )
