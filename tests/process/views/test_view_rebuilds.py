"""Rebuilds of views end, whatever happens to the classes and the objects meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from mediator.control.port import ChangeOptions
from mediator.materialisation.copier import Copier
from mediator.routing.model import ClassRoute
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on
from tests.process.views.views import BOUND_S, ViewClient, client_of, may_run

CLASSES = {name: {"fields": {"title": field_on("postgres")}} for name in ("articles", "notes")}
VIEW: dict[str, Any] = {
    "mode": "microbatched",
    "materialised_view": {"system": "postgres", "staleness_s": BOUND_S},
}


@pytest.fixture
def may_build(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that builds wait for."""
    count, allowed = Copier.count, asyncio.Event()

    async def count_later(copier: Copier, route: ClassRoute) -> int:
        await allowed.wait()
        return await count(copier, route)

    monkeypatch.setattr(Copier, "count", count_later)
    return allowed


async def start_rebuild(mirrored: Service, database: str) -> None:
    """Start a rebuild, and wait until it waits for builds."""
    views = mirrored.mediator.views
    await views.start_run(database, "rebuild")

    async def is_waiting() -> bool:
        run = (await views.describe(database))["run"]
        return bool(run["phase"].startswith("building"))

    await eventually(is_waiting)


async def test_a_rebuild_ends_although_a_class_is_dropped(
    mirrored: Service, may_build: asyncio.Event
) -> None:
    database = await mirrored.put_schema(CLASSES, **VIEW)
    await start_rebuild(mirrored, database)
    document = {"classes": {"articles": CLASSES["articles"]}, **VIEW}
    options = ChangeOptions(drop=frozenset({"notes"}))
    await mirrored.mediator.control.set_schema(database, document, options=options)
    may_build.set()
    await eventually(partial(has_state, mirrored, database, "done"))
    run = (await mirrored.mediator.views.describe(database))["run"]
    assert [*run["classes"]] == ["articles"]


async def test_a_rebuild_ends_although_a_copy_is_replaced(
    mirrored: Service, may_build: asyncio.Event
) -> None:
    """A class has another copy when the view is on another system."""
    database = await mirrored.put_schema(CLASSES, **VIEW)
    await start_rebuild(mirrored, database)
    other_view = {**VIEW, "materialised_view": {"system": "mongo", "staleness_s": BOUND_S}}
    await mirrored.mediator.control.set_schema(database, {"classes": CLASSES, **other_view})
    may_build.set()
    await eventually(partial(has_state, mirrored, database, "done"))


async def test_a_rebuild_ends_with_its_database(
    mirrored: Service, may_build: asyncio.Event
) -> None:
    database = await mirrored.put_schema(CLASSES, **VIEW)
    id_ = mirrored.mediator.data.model.databases[database].id
    await start_rebuild(mirrored, database)
    await mirrored.mediator.control.delete_schema(database)
    await eventually(partial(may_run, mirrored.mediator, id_))


async def test_a_rebuild_ends_although_an_object_cannot_be_copied(
    mirrored: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await mirrored.put_schema(CLASSES, **VIEW)
    copy: Callable[..., Any] = Copier.copy

    async def copy_others(
        copier: Copier, route: ClassRoute, ids: Sequence[str], **options: Any
    ) -> int:
        if "stuck" in ids:
            raise ValueError("it cannot be copied")
        return int(await copy(copier, route, ids, **options))

    monkeypatch.setattr(Copier, "copy", copy_others)
    async with client_of(mirrored, database) as client:
        view = ViewClient(mirrored, database, client)
        for id_ in ("stuck", "right"):
            await view.send("PUT", id_, {"title": "t"})
        findings = await view.report("rebuild")
        assert findings["objects"] == 2
        assert await view.read_copy("right") is not None


async def has_state(mirrored: Service, database: str, state: str) -> bool:
    run = (await mirrored.mediator.views.describe(database))["run"]
    return bool(run["state"] == state)
