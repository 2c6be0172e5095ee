"""A lagging replica that holds writes, or retires versions, admits none by a former layout."""

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
from tests.process.control.test_placing_anew import (
    follow,
    notes_on,
    pause_at,
    wait_for_hold,
    wait_until_stopped,
)
from tests.process.control.unique_building import can_claim, fill_database, put, users
from tests.process.service import Service, error_of, service, unique


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[Any]) -> AsyncIterator[Service]:
    """A replica that follows the catalogue only on a test's request."""
    async with AsyncExitStack() as stack:
        instance = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await instance.mediator.scheduler.stop()
        yield instance


def schema(*, unique: bool) -> dict[str, Any]:
    """Return a schema of users, with unique addresses or not, and of a class that stays empty."""
    return {"classes": {**users("redis", unique=unique)["classes"], **notes_on("redis")}}


async def create_two_classes(mediator: Service) -> str:
    database = await fill_database(mediator, "redis", ["a@x", "b@x"])
    await put(mediator, database, schema(unique=False))
    return database


async def place(mediator: Service, database: str) -> Any:
    """Place the empty class anew."""
    classes = {**schema(unique=False)["classes"], **notes_on("mongo")}
    return await put(mediator, database, {"classes": classes})


async def retire(mediator: Service, database: str) -> Any:
    return await mediator.mediator.control.retire_versions(database, 2)


@pytest.mark.parametrize(("change", "call"), [(place, "hold"), (retire, "retire")])
async def test_a_change_that_was_planned_before_a_build_began_lets_no_duplicate_through(
    mediator: Service,
    late: Service,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Service, str], Coroutine[Any, Any, Any]],
    call: str,
) -> None:
    """The lagging replica adopted another's hold, which ends with another layout."""
    database = await create_two_classes(mediator)
    await follow(late)
    planned = pause_at(monkeypatch, late.mediator.stored_schemas, call)
    changing = asyncio.create_task(change(late, database))
    await wait_until_stopped(changing, by=planned)
    swept = pause_at(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    building = asyncio.create_task(put(mediator, database, schema(unique=True)))
    await wait_for_hold(mediator, late)
    await follow(late)
    await wait_until_stopped(building, by=swept)
    holding = pause_at(monkeypatch, late.mediator.cutover, "check_still_empty")
    planned.open.set()
    await wait_until_stopped(changing, by=holding)
    twin = Create(database, "users", "twin", unique(), values={"email": "a@x"})
    assert isinstance(await error_of(late, twin), NotUnique)
    holding.open.set()
    await changing
    swept.open.set()
    await eventually(lambda: has_ended(building, late))
    await building
    assert not any([await can_claim(replica, database, "a@x") for replica in (mediator, late)])


async def has_ended(task: asyncio.Task[Any], late: Service) -> bool:
    await follow(late)
    return task.done()


async def test_a_database_whose_layout_changes_meanwhile_is_dropped(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await create_two_classes(mediator)
    planned = pause_at(monkeypatch, late.mediator.stored_schemas, "hold")
    dropping = asyncio.create_task(late.mediator.control.delete_schema(database))
    await wait_until_stopped(dropping, by=planned)
    schemas = mediator.mediator.stored_schemas
    stored = (await schemas.snapshot()).databases[database]
    notes = {**stored.layout["notes"], "building": None}
    await schemas.put_layout(replace(stored, layout={**stored.layout, "notes": notes}), stored)
    planned.open.set()
    assert (await dropping)["objects"] == {"notes": 0, "users": 2}
    with pytest.raises(NotFound):
        await mediator.mediator.control.schema(database)
