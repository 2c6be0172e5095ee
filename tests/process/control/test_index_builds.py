"""Indexes added to classes with objects: the change waits for the build, nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.errors import Conflict, NotUnique
from mediator.control import index_builds
from mediator.control.port import SchemaChange
from tests.faults.conditions import eventually
from tests.process.control.test_placing_anew import Pause, late, pause_at
from tests.process.queries.querying import query_client
from tests.process.service import Service

__all__ = ["late"]  # a fixture

SYSTEMS: Final = ("redis", "postgres", "mongo")
OPEN: Final[dict[str, Any]] = {"filter": {"eq": ["status", "open"]}, "allow_scan": True}


def orders(system: str, **members: Any) -> dict[str, Any]:
    fields = {"status": {"type": "string", **members}, "total": {"type": "integer"}}
    return {"classes": {"orders": {"system": system, "fields": fields}}}


async def fill_database(mediator: Service, system: str) -> str:
    database = await mediator.put_schema(orders(system)["classes"])
    for number in range(3):
        await mediator.create(database, "orders", f"o{number}", status="open", total=number)
    return database


async def access(mediator: Service, database: str) -> str:
    async with query_client(mediator, database) as client:
        result = await client.query("orders", {**OPEN, "explain": True})
    assert [item["id"] for item in result["items"]] == ["o0", "o1", "o2"]
    kind: str = result["explain"]["access"]
    return kind


def put(mediator: Service, database: str, document: dict[str, Any]) -> asyncio.Task[SchemaChange]:
    return asyncio.create_task(mediator.mediator.control.set_schema(database, document))


def pause_build(patched: pytest.MonkeyPatch, mediator: Service, system: str) -> Pause:
    """Pause index builds on a system."""
    return pause_at(patched, mediator.mediator.systems.get(system).store, "build")


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        yield client


@pytest.mark.parametrize("system", SYSTEMS)
async def test_all_else_goes_on_while_an_index_is_built(
    mediator: Service, admin: httpx.AsyncClient, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    database = await fill_database(mediator, system)
    before = await access(mediator, database)
    with monkeypatch.context() as patched:
        pause = pause_build(patched, mediator, system)
        change = put(mediator, database, orders(system, index=True))
        await pause.reached.wait()
        [build] = await control.index_builds(database)
        assert (build["class"], build["system"]) == ("orders", system)
        assert build["indexes"] == ["status"]
        assert build["share"] is None
        response = await admin.get(f"/admin/v1/schemas/{database}/index-builds")
        assert [build["indexes"] for build in response.json()["items"]] == [["status"]]
        page = (await admin.get("/schema", params={"database": database})).text
        assert f"status of <strong>orders</strong> on {system}, for " in page
        assert await access(mediator, database) == before
        patched.undo()
        other = await mediator.put_schema(orders(system)["classes"])
        assert await control.index_builds(other) == []
        assert (await control.stored_schema(database))[1] == 1
        pause.open.set()
        assert (await change).version == 2
    assert await control.index_builds(database) == []
    assert await access(mediator, database) == "index"


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_request_that_waited_too_long_is_refused_and_can_be_retried(
    mediator: Service, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    database, document = await fill_database(mediator, system), orders(system, index=True)
    monkeypatch.setattr(index_builds, "WAIT_S", 0.0)
    with monkeypatch.context() as patched:
        pause = pause_build(patched, mediator, system)
        for _ in range(2):
            with pytest.raises(Conflict, match="Send the same request again") as refused:
                await control.set_schema(database, document)
            [build] = refused.value.extra["builds"]
            assert build["indexes"] == ["status"]
        assert len(await control.index_builds(database)) == 1
        assert (await control.stored_schema(database))[1] == 1
        patched.undo()
    pause.open.set()

    async def is_built() -> bool:
        return not await control.index_builds(database)

    await eventually(is_built)
    monkeypatch.setattr(index_builds, "WAIT_S", 60.0)
    assert (await control.set_schema(database, document)).version == 2
    assert await access(mediator, database) == "index"


async def test_a_replica_that_ends_leaves_the_build_to_another_one(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, "redis")
    with monkeypatch.context() as patched:
        pause = pause_build(patched, late, "redis")
        change = put(late, database, orders("redis", index=True))
        await pause.reached.wait()
        await late.mediator.index_builds.close()
        with pytest.raises(asyncio.CancelledError):
            await change
        patched.undo()
    document = orders("redis", index=True)
    assert (await mediator.mediator.control.set_schema(database, document)).version == 2
    assert await access(mediator, database) == "index"


async def test_a_request_that_ends_does_not_end_the_build(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = mediator.mediator.control
    database = await fill_database(mediator, "postgres")
    with monkeypatch.context() as patched:
        pause = pause_build(patched, mediator, "postgres")
        change = put(mediator, database, orders("postgres", index=True))
        await pause.reached.wait()
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        assert len(await control.index_builds(database)) == 1
        patched.undo()
    pause.open.set()
    assert (await control.set_schema(database, orders("postgres", index=True))).version == 2


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_build_keeps_a_change_that_came_first(
    mediator: Service, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resumes after another index and a unique constraint of the same class are in force."""
    control = mediator.mediator.control
    database = await fill_database(mediator, system)
    monkeypatch.setattr(index_builds, "WAIT_S", 0.0)
    with monkeypatch.context() as patched:
        pause = pause_build(patched, mediator, system)
        with pytest.raises(Conflict):
            await control.set_schema(database, orders(system, index=True))
        patched.undo()
    monkeypatch.setattr(index_builds, "WAIT_S", 60.0)
    other = orders(system)
    other["classes"]["orders"]["fields"]["total"] |= {"index": True, "unique": True}
    assert (await control.set_schema(database, other)).version == 2
    pause.open.set()

    async def is_built() -> bool:
        return not await control.index_builds(database)

    await eventually(is_built)
    query = {"filter": {"eq": ["total", 1]}, "explain": True}
    async with query_client(mediator, database) as client:
        result = await client.query("orders", query)
    assert [item["id"] for item in result["items"]] == ["o1"]
    assert result["explain"]["access"] == "index"
    with pytest.raises(NotUnique):
        await mediator.create(database, "orders", "o9", status="open", total=1)
    assert await access(mediator, database) != "index"
    both = orders(system, index=True)
    both["classes"]["orders"]["fields"]["total"] |= {"index": True, "unique": True}
    assert (await control.set_schema(database, both)).version == 3
    assert await access(mediator, database) == "index"
