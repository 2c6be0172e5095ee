"""A replica that is behind holds writes, or retires versions: it admits none by a former layout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import NotFound, NotUnique
from mediator.model.operations import Create
from tests.faults.conditions import eventually
from tests.process.control.test_placing_anew import follows, on, paused, stopped, waits
from tests.process.control.unique_building import filled, put, takes, users
from tests.process.service import Service, error_of, service, unique


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[Any]) -> AsyncIterator[Service]:
    """A replica that follows only when a test lets it."""
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await started.mediator.scheduler.stop()
        yield started


def schema(*, unique: bool) -> dict[str, Any]:
    """Return a schema of users, whose addresses may be unique, and of a class that stays empty."""
    return {"classes": {**users("redis", unique=unique)["classes"], **on("redis")}}


async def with_two_classes(of: Service) -> str:
    database = await filled(of, "redis", ["a@x", "b@x"])
    await put(of, database, schema(unique=False))
    return database


async def place(of: Service, database: str) -> Any:
    """Place the empty class anew."""
    classes = {**schema(unique=False)["classes"], **on("mongo")}
    return await put(of, database, {"classes": classes})


async def retire(of: Service, database: str) -> Any:
    return await of.mediator.control.retire_versions(database, 2)


@pytest.mark.parametrize(("change", "call"), [(place, "hold"), (retire, "retire")])
async def test_a_change_that_was_planned_before_a_build_began_lets_no_duplicate_through(
    mediator: Service,
    late: Service,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Service, str], Coroutine[Any, Any, Any]],
    call: str,
) -> None:
    """The late replica refuses writes for another one's hold, which ends with another layout."""
    database = await with_two_classes(mediator)
    await follows(late)
    planned = paused(monkeypatch, late.mediator.stored_schemas, call)
    changing = asyncio.create_task(change(late, database))
    await stopped(changing, by=planned)
    swept = paused(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    building = asyncio.create_task(put(mediator, database, schema(unique=True)))
    await waits(mediator, late)
    await follows(late)
    await stopped(building, by=swept)
    held = paused(monkeypatch, late.mediator.cutover, "check_still_empty")
    planned.open.set()
    await stopped(changing, by=held)
    twin = Create(database, "users", "twin", unique(), values={"email": "a@x"})
    assert isinstance(await error_of(late, twin), NotUnique)
    held.open.set()
    await changing
    swept.open.set()
    await eventually(lambda: ended(building, late))
    await building
    assert not any([await takes(of, database, "a@x") for of in (mediator, late)])


async def ended(task: asyncio.Task[Any], late: Service) -> bool:
    await follows(late)
    return task.done()


async def test_a_database_is_dropped_whose_layout_changes_meanwhile(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await with_two_classes(mediator)
    planned = paused(monkeypatch, late.mediator.stored_schemas, "hold")
    dropping = asyncio.create_task(late.mediator.control.delete_schema(database))
    await stopped(dropping, by=planned)
    schemas = mediator.mediator.stored_schemas
    stored = (await schemas.snapshot()).databases[database]
    notes = {**stored.layout["notes"], "building": None}
    await schemas.put_layout(replace(stored, layout={**stored.layout, "notes": notes}), stored)
    planned.open.set()
    assert (await dropping)["objects"] == {"notes": 0, "users": 2}
    with pytest.raises(NotFound):
        await mediator.mediator.control.schema(database)
