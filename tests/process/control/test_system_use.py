"""Systems that an operator drains or suspends: placements, calls, and the end of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.errors import Conflict, Unavailable, Unplaceable
from mediator.base.observation import CircuitChanged
from mediator.control.port import SeenStatements, SystemUse
from mediator.stores.port import SystemConfig
from tests.process.caching.newspaper import assert_problem
from tests.process.control.classes import class_on
from tests.process.service import Service, scratch_catalogue, service


@pytest.fixture
async def own(
    system_configs: Sequence[SystemConfig], postgresql_config: SystemConfig
) -> AsyncIterator[Service]:
    """A separate installation, as the systems of a shared one must not be suspended."""
    async with (
        scratch_catalogue(postgresql_config) as url,
        service(system_configs, url) as instance,
    ):
        await instance.favour()
        yield instance


async def test_nothing_new_is_placed_on_a_system_that_is_drained(own: Service) -> None:
    control = own.mediator.control
    database = await own.put_schema({"notes": class_on("redis")})
    await own.create(database, "notes", "x", title="t")
    described = await control.amend("redis", use=SystemUse.DRAINING)
    assert (described["use"], described["state"]) == ("draining", "serving")
    assert await own.values(database, "notes", "x") == {"title": "t"}, "existing data is served"
    await own.create(database, "notes", "y", title="t")
    other = await own.put_schema({"notes": class_on("redis")})
    assert own.systems_of(other, "notes") != ("redis",)
    with pytest.raises(Unplaceable) as refused:
        await own.put_schema({"notes": class_on("redis")}, system="redis")
    assert "its operator has it draining" in str(refused.value.locations)
    classes = {"notes": class_on("redis"), "more": class_on("redis")}
    await control.set_schema(database, {"classes": classes})
    assert own.systems_of(database, "notes") == ("redis",), "data stays where it is"
    assert own.systems_of(database, "more") != ("redis",)
    await control.amend("redis", use=SystemUse.FULL)
    third = await own.put_schema({"notes": class_on("redis")})
    assert own.systems_of(third, "notes") == ("redis",)


async def test_moves_off_a_system_are_listed_before_it_is_drained_and_after(own: Service) -> None:
    control = own.mediator.control
    database = await own.put_schema({"notes": class_on("redis"), "texts": class_on("postgres")})
    bound = await own.put_schema({"notes": class_on("redis")}, system="redis")
    for use in (SystemUse.FULL, SystemUse.DRAINING):
        await control.amend("redis", use=use)
        moves = {
            (move["database"], move["node"]): move for move in await control.moves_off("redis")
        }
        assert {name for name, _ in moves} == {database, bound}
        move = moves[database, "notes.title"]
        assert move["proposed"] not in (None, "redis")
        assert move["why"]
        assert [move["proposed"] for (name, _), move in moves.items() if name == bound] == [None]
    assert await control.moves_off("mongo") == []


async def test_a_system_with_only_a_materialised_view_is_in_use(own: Service) -> None:
    control, classes = own.mediator.control, {"notes": class_on("redis")}
    database = await own.put_schema(
        classes, mode="microbatched", materialised_view={"system": "postgres"}
    )
    with pytest.raises(Conflict) as refused:
        await control.unregister("postgres")
    assert refused.value.extra["classes"] == [f"{database}.notes"]
    assert (await control.readiness())["systems"]["postgres"]["serves"] == [f"{database}.notes"]
    [move] = await control.moves_off("postgres")
    assert (move["database"], move["node"], move["proposed"]) == (database, "*", None)
    assert (await control.delete_schema(database))["dropped"]

    chosen = await own.put_schema(classes, mode="microbatched")
    copy = own.mediator.data.model.databases[chosen].classes["notes"].copy
    assert copy is not None
    [move] = await control.moves_off(copy.system)
    assert (move["database"], move["node"]) == (chosen, "*")
    await control.amend(copy.system, use=SystemUse.DRAINING)
    await control.set_schema(chosen, {"classes": classes, "mode": "microbatched"})
    copy = own.mediator.data.model.databases[chosen].classes["notes"].copy
    assert copy is not None
    assert copy.system == move["proposed"]


async def test_a_drain_becomes_proposals(own: Service) -> None:
    database = await own.put_schema({"notes": class_on("redis")})
    await own.create(database, "notes", "x", title="t")
    assert await own.mediator.control.proposals(database) == []
    await own.mediator.control.amend("redis", use=SystemUse.DRAINING)
    proposals = await own.mediator.control.proposals(database)
    assert {proposal["current"] for proposal in proposals} == {"redis"}


async def test_a_system_that_is_suspended_is_not_called(own: Service) -> None:
    control = own.mediator.control
    database = await own.put_schema({"notes": class_on("redis"), "texts": class_on("postgres")})
    await own.create(database, "notes", "x", title="t")
    described = await control.amend("redis", use=SystemUse.SUSPENDED)
    assert (described["use"], described["state"]) == ("suspended", "suspended")
    with pytest.raises(Unavailable) as refused:
        await own.get(database, "notes", "x")
    assert refused.value.system == "redis"
    await own.create(database, "texts", "y", title="t")
    assert "redis" in (await control.readiness())["degraded"]
    events = [event for event in own.observed if isinstance(event, CircuitChanged)]
    assert [(event.system, event.open) for event in events] == [("redis", True)]
    await control.amend("redis", use=SystemUse.FULL)
    assert await own.values(database, "notes", "x") == {"title": "t"}


async def test_a_system_stays_suspended_over_a_restart_and_on_other_replicas(
    own: Service, system_configs: Sequence[SystemConfig]
) -> None:
    control = own.mediator.control
    database = await own.put_schema({"notes": class_on("redis")})
    await own.create(database, "notes", "x", title="t")
    async with service(system_configs, own.catalogue_url) as running:
        await control.amend("redis", use=SystemUse.SUSPENDED)
        await running.mediator.registry.reconnect()
        with pytest.raises(Unavailable):
            await running.get(database, "notes", "x")
        async with service(system_configs, own.catalogue_url) as started:
            with pytest.raises(Unavailable):
                await started.get(database, "notes", "x")
        await control.amend("redis", use=SystemUse.FULL)
        await running.mediator.registry.reconnect()
        assert await running.values(database, "notes", "x") == {"title": "t"}


async def test_statements_that_changed_after_they_were_read_stay(
    own: Service, system_configs: Sequence[SystemConfig]
) -> None:
    """Also if another replica has changed them and this one has not read the change."""
    control = own.mediator.control
    seen = SeenStatements(declared=frozenset(), use=SystemUse.FULL)
    async with service(system_configs, own.catalogue_url) as other:
        replicas = (control, other.mediator.control, control, other.mediator.control)
        changes = [
            replica.amend("redis", declared=["joins"], use=SystemUse.DRAINING, seen=seen)
            for replica in replicas
        ]
        results = await asyncio.gather(*changes, return_exceptions=True)
    refused = [result for result in results if isinstance(result, Conflict)]
    assert len(refused) == 3
    assert all(result.extra == {"declared": ["joins"]} for result in refused)
    current = SeenStatements(declared=frozenset({"joins"}))
    described = await control.amend("redis", declared=[], use=SystemUse.FULL, seen=current)
    assert (described["declared"], described["use"]) == ([], "full")


async def test_operators_drain_with_the_api_and_the_page(own: Service) -> None:
    app = create_admin_app(own.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    await own.put_schema({"notes": class_on("redis")})
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as admin:
        path = "/admin/v1/systems/redis"
        response = await admin.patch(path, json={"use": "draining"})
        assert response.json()["use"] == "draining", response.text
        moves = await admin.get(f"{path}/moves")
        assert moves.json()["items"][0]["node"].startswith("notes")
        for wrong in ({"use": "off"}, {"use": None, "more": 1}, {"use": True}):
            assert_problem(await admin.patch(path, json=wrong), 400, "invalid")
        unknown = await admin.patch("/admin/v1/systems/nowhere", json={"use": "full"})
        assert_problem(unknown, 404, "not-found")
        assert_problem(await admin.get("/admin/v1/systems/nowhere/moves"), 404, "not-found")
        page = await admin.get("/systems?system=redis")
        assert "End the drain" in page.text
        assert "Placement without redis" in page.text
        form = {"use": "suspended", "seen": "draining"}
        suspended = await admin.post("/systems/redis/use", data=form)
        assert suspended.status_code == 303, suspended.text
        page = await admin.get("/systems?system=redis")
        assert "Resume redis" in page.text
        for use, seen, status in (("x", "suspended", 400), ("full", "suspended", 303)):
            form = {"use": use, "seen": seen}
            assert (await admin.post("/systems/redis/use", data=form)).status_code == status
        assert (await admin.get(path)).json()["use"] == "full"
