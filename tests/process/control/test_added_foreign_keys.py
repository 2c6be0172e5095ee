"""Foreign keys added to data: dangling references are found, even with a lagging replica."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import (
    ConstraintViolated,
    DanglingReference,
    StillReferenced,
    Unavailable,
)
from mediator.control.port import ChangeOptions
from mediator.model.operations import Create, Delete, Put
from tests.process.control.test_placing_anew import follow, late, pause_at, wait_for_hold
from tests.process.service import Service, error_of, field_on, unique

__all__ = ["late"]  # a fixture

UNCHECKED = ChangeOptions(unchecked=True)
ADDED = {"location": "/classes/books/fields/author", "constraint": "on_delete"}


def schema(on_delete: str, **more: Any) -> dict[str, Any]:
    author = field_on("postgres", "reference", to="authors", on_delete=on_delete, index=True)
    books = {"fields": {"author": author}}
    return {"classes": {"authors": {"fields": {"n": field_on("redis")}}, "books": books, **more}}


async def library(mediator: Service) -> str:
    """Return a database whose books refer to authors, without a foreign key."""
    name = unique("db")
    await mediator.mediator.control.set_schema(name, schema("ignore"))
    await mediator.create(name, "authors", "ada")
    await mediator.create(name, "books", "fine", author="ada")
    await mediator.create(name, "books", "none")
    return name


async def test_dangling_elements_of_lists_refuse_the_change(mediator: Service) -> None:
    def with_list(on_delete: str) -> dict[str, Any]:
        reference = {"items": "reference", "to": "authors", "index": True, "max_length": 9}
        by = field_on("mongo", "list", on_delete=on_delete, **reference)
        return schema("ignore", several={"fields": {"by": by}})

    name, control = unique("db"), mediator.mediator.control
    await control.set_schema(name, with_list("ignore"))
    await mediator.create(name, "authors", "ada")
    await mediator.create(name, "several", "fine", by=["ada", "ada"])
    await mediator.create(name, "several", "lost", by=["ada", "nobody"])
    with pytest.raises(ConstraintViolated) as refused:
        await control.set_schema(name, with_list("nullify"))
    [violation] = refused.value.extra["violations"]
    assert (violation["count"], violation["sample"]) == (1, ["lost"])
    corrected = Put(name, "several", "lost", unique(), values={"by": ["ada"]})
    assert await error_of(mediator, corrected) is None
    await control.set_schema(name, with_list("nullify"))
    assert await error_of(mediator, Delete(name, "authors", "ada", unique())) is None
    assert await mediator.values(name, "several", "lost") == {"by": []}


async def test_dangling_references_refuse_the_change(mediator: Service) -> None:
    name, control = await library(mediator), mediator.mediator.control
    for n in range(7):
        await mediator.create(name, "books", f"lost{n}", author=f"nobody{n % 2}")
    dry = await control.set_schema(name, schema("refuse"), dry_run=True)
    [violation] = dry.violations
    sample = violation.pop("sample")
    assert violation == {**ADDED, "count": 7, "checked": 9}
    assert len(sample) == 5
    with pytest.raises(ConstraintViolated) as refused:
        await control.set_schema(name, schema("refuse"))
    [location] = refused.value.locations
    assert location.pointer == "/classes/books/fields/author/on_delete"
    change = await control.set_schema(name, schema("refuse"), options=UNCHECKED)
    assert change.document["classes"]["books"]["fields"]["author"]["on_delete"] == "refuse"
    assert isinstance(
        await error_of(mediator, Delete(name, "authors", "ada", unique())), StillReferenced
    )
    # Another action leaves the key as it is, and reads no objects.
    second = await control.set_schema(name, schema("cascade"))
    assert second.violations == ()
    assert await error_of(mediator, Delete(name, "authors", "ada", unique())) is None
    assert (await mediator.get(name, "books", "lost0")).values == {"author": "nobody0"}


async def test_a_replica_that_is_late_neither_deletes_nor_refers(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writes to both classes are held until it has the foreign key."""
    name = await library(mediator)
    await late.get(name, "books", "fine")
    control, cutover = mediator.mediator.control, mediator.mediator.cutover
    pause = pause_at(monkeypatch, cutover, "check_unwritten", after=True)
    change = asyncio.create_task(control.set_schema(name, schema("refuse")))
    await wait_for_hold(mediator, late)
    assert await error_of(late, Create(name, "authors", "bob", unique())) is None
    await follow(late)
    await pause.reached.wait()
    refer = Create(name, "books", "lost", unique(), values={"author": "nobody"})
    delete = Delete(name, "authors", "ada", unique())
    for replica in (mediator, late):
        for operation in (refer, delete):
            assert isinstance(await error_of(replica, operation), Unavailable)
    pause.open.set()
    # The replica still has the former model: the write finds the new one.
    assert isinstance(await error_of(late, refer), Unavailable | DanglingReference)
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    assert (await change).violations == ()
    assert isinstance(await error_of(late, refer), DanglingReference)
    assert isinstance(await error_of(late, delete), StillReferenced)


async def test_a_write_that_is_late_is_refused_or_found(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write with the former route is stopped on its way to the system."""
    name = await library(mediator)
    await late.get(name, "books", "fine")
    refer = Create(name, "books", "lost", unique(), values={"author": "nobody"})
    pause = pause_at(monkeypatch, late.mediator.calls, "write")
    writing = asyncio.create_task(error_of(late, refer))
    await pause.reached.wait()
    change = asyncio.create_task(mediator.mediator.control.set_schema(name, schema("refuse")))
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    assert (await change).violations == ()
    pause.open.set()
    assert isinstance(await writing, Unavailable)


async def test_an_added_class_protects_an_existing_one(mediator: Service, late: Service) -> None:
    name = await library(mediator)
    more = {"papers": schema("refuse")["classes"]["books"]}
    await late.get(name, "authors", "ada")
    change = asyncio.create_task(
        mediator.mediator.control.set_schema(name, schema("ignore", **more))
    )
    await wait_for_hold(mediator, late)
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    await change
    await mediator.create(name, "papers", "p", author="ada")
    assert isinstance(
        await error_of(late, Delete(name, "authors", "ada", unique())), StillReferenced
    )
