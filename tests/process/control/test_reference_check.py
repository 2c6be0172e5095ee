"""The check of references on every store: fields, lists, concurrent writes, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.concurrency import result_or_error
from mediator.base.errors import Invalid, NotFound, Unavailable
from mediator.data_plane import port
from mediator.integrity import references
from mediator.integrity.references import ReferenceCheck, Repair
from mediator.model.operations import Condition, Create, Delete, Outcome, Update
from mediator.operations import torn_reads
from mediator.transactions.model import CommitRequest
from tests.faults.conditions import eventually
from tests.process.control.test_placing_anew import Pause, pause_at
from tests.process.service import Service, field_on, unique

SYSTEMS = ("redis", "postgres", "mongo")


def check_of(mediator: Service) -> ReferenceCheck:
    return mediator.mediator.reference_check


@pytest.fixture(scope="module", params=SYSTEMS)
async def library(mediator: Service, request: pytest.FixtureRequest) -> str:
    system = request.param
    refers = {"to": "authors"}
    fields = {
        "author": field_on(system, "reference", **refers),
        "others": field_on(system, "list", items="reference", **refers),
        "main": field_on(system, "reference", required=True, **refers),
    }
    strict = {"author": field_on(system, "reference", index=True, on_delete="refuse", **refers)}
    notes = {"on": field_on(system, "reference", to="books", on_delete="refuse", index=True)}
    name = await mediator.put_schema(
        {
            "authors": {},
            "books": {"fields": fields, "require_if_match": True},
            "strict": {"fields": strict},
            "notes": {"fields": notes},
        }
    )
    await mediator.create(name, "authors", "ada")
    return name


async def volume(mediator: Service, library: str, id_: str, **values: Any) -> None:
    await mediator.create(library, "books", id_, main="ada", **values)


async def test_references_in_lists_are_removed_one_by_one(mediator: Service, library: str) -> None:
    await volume(mediator, library, "l1", others=["ada", "x", "ada", "y"])
    await volume(mediator, library, "l2", others=["ada"])
    check = check_of(mediator).check
    report = await check(library, "books", "others")
    assert (report.dangling, report.repaired, report.next) == (1, 0, None)
    assert report.sample == [{"id": "l1", "to": "x"}]
    assert (await check(library, "books", "others", repair=Repair.NULLIFY)).repaired == 1
    assert (await mediator.values(library, "books", "l1") or {})["others"] == ["ada", "ada"]
    assert (await check(library, "books", "others")).dangling == 0


async def test_an_object_that_was_written_meanwhile_is_not_repaired(
    mediator: Service, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await volume(mediator, library, "w1", author="x")
    look = references.missing_targets

    async def look_then_write(*arguments: Any) -> set[str]:
        missing = await look(*arguments)
        seen = await mediator.get(library, "books", "w1")
        update = Update(library, "books", "w1", unique(), values={"author": "ada"})
        await mediator.mediator.data.write(bound_to(seen, update))
        return missing

    monkeypatch.setattr(references, "missing_targets", look_then_write)
    report = await check_of(mediator).check(library, "books", "author", repair=Repair.NULLIFY)
    assert (report.dangling, report.repaired, report.failed) == (1, 0, 1)
    assert report.problems[0]["id"] == "w1"
    assert (await mediator.values(library, "books", "w1") or {})["author"] == "ada"


def bound_to(seen: Outcome, update: Update) -> Update:
    return replace(update, condition=Condition(versions=(seen.versions,)))


@pytest.fixture
async def half_created(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Pause, asyncio.Task[Any]]]:
    """A transaction that has created a book on Redis, but not yet its author on PostgreSQL."""
    author = field_on("redis", "reference", to="authors")
    fields = {"authors": {"name": field_on("postgres")}, "books": {"author": author}}
    name = await mediator.put_schema(
        {c: {"fields": class_fields} for c, class_fields in fields.items()}
    )
    pause = pause_at(monkeypatch, mediator.mediator.systems.get("postgres").store, "write")
    writes = (
        Create(name, "authors", "ada", unique(), values={"name": "Ada"}),
        Create(name, "books", "b", unique(), values={"author": "ada"}),
    )
    request = CommitRequest(name, unique(), (), writes)
    writing = asyncio.create_task(mediator.mediator.transactions.run(request))

    async def is_half_applied() -> bool:
        return isinstance(await result_or_error(mediator.get, name, "books", "b"), Outcome)

    await eventually(is_half_applied)
    yield name, pause, writing
    pause.open.set()
    await writing


@pytest.mark.parametrize("repair", Repair)
async def test_objects_that_a_transaction_has_yet_to_create_are_not_missing(
    mediator: Service,
    half_created: tuple[str, Pause, asyncio.Task[Any]],
    monkeypatch: pytest.MonkeyPatch,
    repair: Repair,
) -> None:
    name, pause, writing = half_created
    monkeypatch.setattr(torn_reads, "RESOLVED_WITHIN_S", 60.0)
    resolver = mediator.mediator.transactions.resolver
    resolving = pause_at(monkeypatch, resolver, "resolve")
    checking = asyncio.create_task(check_of(mediator).check(name, "books", "author", repair=repair))
    reached = asyncio.create_task(resolving.reached.wait())
    await asyncio.wait([checking, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    pause.open.set()
    await writing
    resolving.open.set()
    report = await checking
    assert (report.objects, report.dangling, report.repaired) == (1, 0, 0)
    assert await mediator.values(name, "books", "b") == {"author": "ada"}


async def test_nothing_is_repaired_while_a_transaction_cannot_be_resolved(
    mediator: Service,
    half_created: tuple[str, Pause, asyncio.Task[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, _, _ = half_created
    monkeypatch.setattr(torn_reads, "RESOLVED_WITHIN_S", 0.0)
    with pytest.raises(Unavailable, match="authors/ada"):
        await check_of(mediator).check(name, "books", "author", repair=Repair.DELETE)
    assert await mediator.values(name, "books", "b") == {"author": "ada"}
    assert (await check_of(mediator).check(name, "books", "author")).dangling == 1


async def test_repairs_that_foreign_keys_forbid_are_reported(
    mediator: Service, library: str
) -> None:
    await volume(mediator, library, "f1", author="x")
    await mediator.create(library, "notes", "n", on="f1")
    report = await check_of(mediator).check(library, "books", "author", repair=Repair.DELETE)
    assert (report.repaired, report.failed) == (0, 1)
    assert "notes.on" in report.problems[0]["detail"]
    await mediator.mediator.data.write(Delete(library, "notes", "n", unique()))
    assert (
        await check_of(mediator).check(library, "books", "author", repair=Repair.DELETE)
    ).repaired
    with pytest.raises(NotFound):
        await mediator.get(library, "books", "f1")


async def test_a_long_check_resumes_where_it_stopped(
    mediator: Service, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "WORK_S", 0.0)
    monkeypatch.setattr(port, "PAGE", 5)
    creates = [
        Create(library, "strict", f"s{n:04}", unique(), values={"author": None}) for n in range(8)
    ]
    await mediator.mediator.data.batch(creates)
    first = await check_of(mediator).check(library, "strict", "author")
    assert (first.objects, first.next) == (5, "s0004")
    second = await check_of(mediator).check(library, "strict", "author", after=first.next)
    assert second.objects == 3


async def test_impossible_checks_are_refused(mediator: Service, library: str) -> None:
    check = check_of(mediator).check
    for name in ("nothing", "id"):
        with pytest.raises(Invalid):
            await check(library, "books", name)
    with pytest.raises(Invalid, match="required"):
        await check(library, "books", "main", repair=Repair.NULLIFY)
    with pytest.raises(NotFound):
        await check(library, "nothing", "author")
