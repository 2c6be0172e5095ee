"""Constraints added to a class that holds data: its objects are checked first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.errors import Conflict, ConstraintViolated, Unavailable
from mediator.base.observation import StoreCallFinished
from mediator.control import constraint_check
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.data_plane import port
from mediator.model.operations import Create, Put
from mediator.query.execution import QueryResult
from tests.process.service import Service, field_on, unique

KINDS: Final[dict[str, tuple[str, dict[str, Any], Any, Any]]] = {
    "required": ("string", {"required": True}, "t", None),
    "minimum": ("integer", {"minimum": 3}, 3, 2),
    "maximum": ("float", {"maximum": 3.5}, 3.5, 3.6),
    "min_length": ("string", {"min_length": 2}, "ab", "a"),
    "max_length": ("binary", {"max_length": 2}, b"ab", b"abc"),
    "enum": ("string", {"enum": ["open", "paid"]}, "paid", "lost"),
    "pattern": ("string", {"pattern": "^[a-z]+$"}, "abc", "ABC"),
}
"""For each constraint: a type, the constraint, a value that satisfies it, one that violates it."""

SPLIT: Final = {
    "title": field_on("redis"),
    "size": field_on("postgres", "integer", group="size"),
    "tag": field_on("mongo", group="tag"),
}


def notes(**fields: Any) -> dict[str, Any]:
    return {"classes": {"notes": {"fields": fields}}}


def set_schema(
    mediator: Service, database: str, document: Any, **members: Any
) -> Awaitable[SchemaChange]:
    options = ChangeOptions(unchecked=members.pop("unchecked", False))
    return mediator.mediator.control.set_schema(database, document, options=options, **members)


def count_reads(mediator: Service, database: str) -> int:
    calls = [event for event in mediator.observed if isinstance(event, StoreCallFinished)]
    return sum(call.database == database and call.operation == "read" for call in calls)


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client


@pytest.mark.parametrize("constraint", KINDS)
@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_objects_that_violate_an_added_constraint_refuse_it(
    mediator: Service, system: str, constraint: str
) -> None:
    type_, members, good, bad = KINDS[constraint]
    plain, bound = field_on(system, type_), field_on(system, type_, **members)
    name = await mediator.put_schema(notes(f=plain)["classes"])
    await mediator.create(name, "notes", "fine", f=good)
    await mediator.create(name, "notes", "null", f=bad)
    expected = {
        "location": "/classes/notes/fields/f",
        "constraint": constraint,
        "count": 1,
        "checked": 2,
        "sample": ["null"],
    }
    dry = await set_schema(mediator, name, notes(f=bound), dry_run=True)
    assert dry.violations == (expected,)
    with pytest.raises(ConstraintViolated) as refused:
        await set_schema(mediator, name, notes(f=bound))
    assert refused.value.extra == {"violations": [expected]}
    [location] = refused.value.locations
    assert location.pointer == f"/classes/notes/fields/f/{constraint}"
    assert (await mediator.mediator.control.schema(name)).version == 1
    await mediator.mediator.data.write(Put(name, "notes", "null", unique(), values={"f": good}))
    assert (await set_schema(mediator, name, notes(f=bound))).violations == ()


async def test_a_refusal_over_http_says_where_how_many_and_what_to_do(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    database = await mediator.put_schema(notes(**SPLIT)["classes"])
    for number in range(8):
        await mediator.create(database, "notes", f"n{number}", title="t", size=number)
    address = f"/admin/v1/schemas/{database}"
    patch = notes(size={"minimum": 6}, tag={"required": True}, more={**SPLIT["tag"], "required": 1})
    patch["classes"]["notes"]["fields"]["more"]["required"] = True
    refused = await admin.patch(address, json=patch)
    assert refused.status_code == 409, refused.text
    problem = refused.json()
    assert problem["type"] == "/problems/constraint-violated"
    assert "unchecked=true" in problem["detail"]
    assert {error["pointer"] for error in problem["errors"]} == {
        "/classes/notes/fields/more/required",
        "/classes/notes/fields/size/minimum",
        "/classes/notes/fields/tag/required",
    }
    violations = {violation["location"]: violation for violation in problem["violations"]}
    assert violations["/classes/notes/fields/size"] == {
        "location": "/classes/notes/fields/size",
        "constraint": "minimum",
        "count": 6,
        "checked": 8,
        "sample": ["n0", "n1", "n2", "n3", "n4"],
    }
    for field in ("tag", "more"):
        assert violations[f"/classes/notes/fields/{field}"]["count"] == 8
    dry = (await admin.patch(address, json=patch, params={"dry_run": "true"})).json()
    assert dry["violations"] == problem["violations"]
    assert (await admin.get(address)).json()["version"] == 1
    response = await admin.patch(address, json=patch, params={"unchecked": "true"})
    assert (response.status_code, response.json()["version"]) == (200, 2)
    assert response.json()["schema"]["classes"]["notes"]["fields"]["size"]["minimum"] == 6
    assert await mediator.values(database, "notes", "n0") == {"title": "t", "size": 0}
    default = notes(tag={"default": "new"})
    filled = await admin.patch(address, json=default, params={"backfill": "true"})
    assert (filled.status_code, filled.json()["violations"]) == (200, [])
    values = await mediator.values(database, "notes", "n0")
    assert values == {"title": "t", "size": 0, "tag": "new"}


async def test_a_class_of_several_pages_is_checked_to_its_end(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "PAGE", 10)
    name = await mediator.put_schema(notes(**SPLIT)["classes"])
    count = 27
    ids = [f"{number:05}" for number in range(count)]
    creations = [
        Create(name, "notes", id_, unique(), values={"title": id_, "size": 1}) for id_ in ids
    ]
    await mediator.mediator.data.batch(creations)
    last = Put(name, "notes", ids[-1], unique(), values={"size": 0})
    await mediator.mediator.data.write(last)
    bound = {**SPLIT, "size": {**SPLIT["size"], "minimum": 1}}
    [violation] = (await set_schema(mediator, name, notes(**bound), dry_run=True)).violations
    assert (violation["count"], violation["checked"], violation["sample"]) == (1, count, [ids[-1]])


async def test_a_change_that_only_loosens_constraints_reads_no_objects(mediator: Service) -> None:
    """Reads of the anchor's system are not observed, so each system has a field."""

    def bounded(**members: Any) -> dict[str, Any]:
        systems = ("redis", "postgres", "mongo")
        return notes(**{s: field_on(s, "integer", group=s, **members) for s in systems})

    name = await mediator.put_schema(bounded(minimum=0, maximum=9, required=True)["classes"])
    assert len(mediator.systems_of(name, "notes")) == 3
    await mediator.create(name, "notes", "x", redis=5, postgres=5, mongo=5)
    before = count_reads(mediator, name)
    await set_schema(mediator, name, bounded(minimum=-1, maximum=9, required=True))
    await set_schema(mediator, name, bounded(minimum=-1))
    tighter = bounded(minimum=0)
    await set_schema(mediator, name, tighter, unchecked=True, dry_run=True)
    assert count_reads(mediator, name) == before
    await set_schema(mediator, name, tighter, dry_run=True)
    assert count_reads(mediator, name) > before


async def test_violations_by_objects_with_owners_are_counted_but_not_sampled(
    mediator: Service,
) -> None:
    owner = field_on("redis", required=True, index=True)
    document = notes(author=owner, f=field_on("redis"))
    document["classes"]["notes"]["owner_field"] = "author"
    name = await mediator.put_schema(document["classes"])
    await mediator.create(name, "notes", "secret", author="ada", f="x")
    document = notes(author=owner, f=field_on("redis", pattern="^y"))
    [violation] = (await set_schema(mediator, name, document, dry_run=True)).violations
    assert (violation["count"], violation["sample"]) == (1, [])


async def test_violating_writes_during_the_schema_change_are_reported(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema(notes(f=field_on("redis"))["classes"])
    await mediator.create(name, "notes", "fine", f="a")
    catalogue = mediator.mediator.stored_schemas
    put = catalogue.put

    async def create_then_put(*change: Any) -> Any:
        await mediator.create(name, "notes", "late", f="b")
        return await put(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", create_then_put)
        change = await set_schema(mediator, name, notes(f=field_on("redis", enum=["a"])))
    assert change.version == 2
    [violation] = change.violations
    assert (violation["constraint"], violation["count"], violation["sample"]) == (
        "enum",
        1,
        ["late"],
    )


async def test_a_change_is_in_force_although_the_second_check_fails(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema(notes(f=field_on("redis"))["classes"])
    await mediator.create(name, "notes", "fine", f="a")

    async def fail(epoch: int) -> None:
        raise Unavailable("Replicas (1) do not confirm.", system="catalogue")

    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.membership, "agree", fail)
        change = await set_schema(mediator, name, notes(f=field_on("redis", enum=["a"])))
    assert (change.version, change.violations) == (2, ())
    assert change.notes[-1].endswith("Replicas (1) do not confirm.")


async def test_a_constraint_that_another_change_drops_during_the_check_is_checked(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This change keeps that constraint, so it tightens the schema that is then in force."""
    enum: dict[str, Any] = {"enum": ["a", "b"]}
    pattern: dict[str, Any] = {"pattern": "^a"}
    name = await mediator.put_schema(notes(f=field_on("redis", **pattern))["classes"])
    await mediator.create(name, "notes", "fine", f="a")
    query, documents = mediator.mediator.data.query, iter([notes(f=field_on("redis"))])

    async def change_then_query(*arguments: Any) -> QueryResult:
        for document in documents:
            await set_schema(mediator, name, document)
            await mediator.create(name, "notes", "b", f="b")
        return await query(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.data, "query", change_then_query)
        with pytest.raises(ConstraintViolated) as refused:
            await set_schema(mediator, name, notes(f=field_on("redis", **pattern, **enum)))
    assert [location.pointer for location in refused.value.locations] == [
        "/classes/notes/fields/f/pattern"
    ]


async def test_a_check_that_has_no_time_left_refuses_the_change(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema(notes(f=field_on("redis"))["classes"])
    await mediator.create(name, "notes", "x", f="a")
    document = notes(f=field_on("redis", enum=["a"]))
    with monkeypatch.context() as patched:
        patched.setattr(constraint_check, "CHECK_S", 0.0)
        with pytest.raises(Conflict, match="Not all objects of notes were checked"):
            await set_schema(mediator, name, document)
        dry = await set_schema(mediator, name, document, dry_run=True)
    assert any(note.startswith("Not all objects of notes") for note in dry.notes)
    assert (await mediator.mediator.control.schema(name)).version == 1


async def test_other_schemas_are_changed_while_objects_are_checked(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await mediator.put_schema(notes(f=field_on("redis"))["classes"])
    await mediator.create(name, "notes", "x", f="a")
    query = mediator.mediator.data.query
    reached, resume = asyncio.Event(), asyncio.Event()

    async def pause(*arguments: Any) -> QueryResult:
        reached.set()
        await resume.wait()
        return await query(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.data, "query", pause)
        document = notes(f=field_on("redis", enum=["a"]))
        change = asyncio.ensure_future(set_schema(mediator, name, document))
        await reached.wait()
        await mediator.put_schema(notes(f=field_on("redis"))["classes"])
        resume.set()
        assert (await change).version == 2
