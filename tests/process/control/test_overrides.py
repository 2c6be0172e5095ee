"""Overrides by operators, over the admin API and the three real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from mediator.base.clock import SystemClock
from mediator.control import overrides
from mediator.control.overrides import OVERRIDE_MAX_DAYS
from mediator.stores.port import SystemConfig
from tests.process.service import Service, field_on, service

FIELDS: dict[str, Any] = {
    "title": field_on("postgres"),
    "hits": field_on("redis", "integer", group="hits"),
}


def override(system: str, days: float = 1) -> dict[str, Any]:
    until = datetime.now(UTC) + timedelta(days=days)
    return {"system": system, "reason": "the disk is full", "until": until.isoformat()}


class InTwoDays(SystemClock):
    """A clock two days ahead of the others."""

    @staticmethod
    def now() -> float:
        return SystemClock.now() + 2 * 86_400


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://a/admin/v1/") as client:
        yield client


@pytest.fixture
async def later(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> AsyncIterator[Service]:
    """A replica on which one-day overrides have expired."""
    async with service(system_configs, mediator.catalogue_url, clock=InTwoDays()) as instance:
        yield instance


async def test_an_empty_class_follows_an_override_and_comes_back(
    mediator: Service, replica: Service, admin: httpx.AsyncClient
) -> None:
    name = await mediator.put_schema({"notes": {"system": "postgres", "fields": FIELDS}})
    path = f"overrides/{name}/notes"
    dry_run = await admin.put(path, params={"dry_run": "true"}, json=override("mongo"))
    assert dry_run.json()["placements"]["notes"]["system"] == "mongo"
    assert (await admin.get(f"overrides/{name}")).json() == {"items": []}
    answer = await admin.put(path, json=override("mongo"))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["version"], body["schema"]["classes"]["notes"]["system"]) == (2, "postgres")
    assert body["overrides"]["notes"]["reason"] == "the disk is full"
    assert body["placements"]["notes.title"]["kind"] == "overridden"
    assert mediator.systems_of(name, "notes") == ("mongo",)
    for plane in (mediator, replica):
        why = (await plane.mediator.control.explain(name, "notes", "title"))["why"]
        assert why.startswith("notes is overridden to mongo until ")
        assert "(the disk is full), though postgres would score " in why
    assert replica.systems_of(name, "notes") == ("mongo",)
    [item] = (await admin.get(f"overrides/{name}")).json()["items"]
    assert (item["node"], item["system"]) == ("notes", "mongo")
    assert (await admin.get(f"schemas/{name}")).json()["overrides"].keys() == {"notes"}
    assert (await admin.delete(path)).json()["overrides"] == {}
    assert mediator.systems_of(name, "notes") == ("postgres",)
    assert (await admin.delete(path)).status_code == 404


async def test_a_field_is_overridden_with_its_cache_group(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    fields = {**FIELDS, "views": {"type": "integer", "group": "hits"}}
    name = await mediator.put_schema({"notes": {"fields": fields}})
    answer = await admin.put(f"overrides/{name}/notes/views", json=override("mongo"))
    placements = answer.json()["placements"]
    assert {placements[f"notes.{field}"]["system"] for field in ("hits", "views")} == {"mongo"}
    assert placements["notes.title"]["system"] == "postgres"
    assert (await admin.delete(f"overrides/{name}/notes/views")).status_code == 200
    assert mediator.systems_of(name, "notes") == ("postgres", "redis")


async def test_data_stays_and_an_override_keeps_it_there(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    name = await mediator.put_schema({"notes": {"fields": FIELDS}})
    await mediator.create(name, "notes", "x", title="t", hits=1)
    refused = await admin.put(f"overrides/{name}/notes", json=override("mongo"))
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/data-would-move")
    moves = {(move["node"], move["from"], move["to"]) for move in refused.json()["plan"]}
    assert ("notes.title", "postgres", "mongo") in moves
    assert (await admin.get(f"overrides/{name}")).json() == {"items": []}
    response = await admin.put(f"overrides/{name}/notes/title", json=override("postgres"))
    assert response.status_code == 200, response.text
    what_if = {"metrics": {"mongo": {"read_latency": 1e-9}}}
    moves = (await admin.post(f"what-if/{name}", json=what_if)).json()["moves"]
    assert "notes.title" not in {move["node"] for move in moves}
    assert await mediator.values(name, "notes", "x") == {"title": "t", "hits": 1}


async def test_an_override_expires_and_leaves_data_where_it_is(
    mediator: Service, later: Service, admin: httpx.AsyncClient
) -> None:
    schema: dict[str, Any] = {"classes": {"notes": {"system": "postgres", "fields": FIELDS}}}
    name = await mediator.put_schema(schema["classes"])
    await admin.put(f"overrides/{name}/notes", json=override("redis"))
    await mediator.create(name, "notes", "x", title="t", hits=1)
    explanation = await later.mediator.control.explain(name, "notes", "title")
    assert (explanation["system"], explanation["kind"]) == ("redis", "pinned")
    assert explanation["required_system"] == {
        "system": "postgres",
        "node": "notes",
        "override": None,
    }
    assert "redis holds its data" in explanation["why"]
    assert "notes requires the system postgres" in explanation["why"]
    described = await later.mediator.control.schema(name)
    assert described.overrides == {}
    await later.mediator.control.calibrate("redis")
    proposals = await later.mediator.control.proposals(name)
    title = next(proposal for proposal in proposals if proposal["node"] == "notes.title")
    assert (title["current"], title["proposed"]) == ("redis", "postgres")
    # An unrelated change is not refused because the class should move.
    schema["classes"]["notes"]["fields"] = {**FIELDS, "note": {"type": "string"}}
    change = await later.mediator.control.set_schema(name, schema)
    assert (change.version, change.overrides) == (3, {})
    assert await later.values(name, "notes", "x") == {"title": "t", "hits": 1}


async def test_an_override_can_be_deleted_although_it_placed_the_data(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    name = await mediator.put_schema({"notes": {"system": "postgres", "fields": FIELDS}})
    await admin.put(f"overrides/{name}/notes", json=override("redis"))
    await mediator.create(name, "notes", "x", title="t", hits=1)
    response = await admin.delete(f"overrides/{name}/notes")
    assert response.status_code == 200, response.text
    assert response.json()["placements"]["notes.title"]["kind"] == "pinned"
    assert mediator.systems_of(name, "notes") == ("redis",)
    assert await mediator.values(name, "notes", "x") == {"title": "t", "hits": 1}


async def test_an_override_of_a_node_that_is_gone_is_forgotten(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    name = await mediator.put_schema({"notes": {"fields": FIELDS}, "rest": {"fields": FIELDS}})
    await admin.put(f"overrides/{name}/rest", json=override("mongo"))
    change = await mediator.mediator.control.set_schema(
        name, {"classes": {"notes": {"fields": FIELDS}}}
    )
    assert change.overrides == {}
    assert (await admin.get(f"overrides/{name}")).json() == {"items": []}


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"system": "monga"}, "/system"),
        ({"system": "No Name"}, "/system"),
        ({"system": None}, "/system"),
        ({"reason": ""}, "/reason"),
        ({"reason": "x" * 301}, "/reason"),
        ({"reason": "a\nb"}, "/reason"),
        ({"reason": "\x1b[2J"}, "/reason"),
        ({"reason": 1}, "/reason"),
        ({"until": "2020-01-01T00:00:00Z"}, "/until"),
        ({"until": "tomorrow"}, "/until"),
        ({"until": "2030-01-01T00:00:00"}, "/until"),
        ({"until": None}, "/until"),
        ({"until": "9999-12-31T23:59:59-23:59"}, "/until"),
        ({"until": "0001-01-01T00:00:00+23:59"}, "/until"),
        ({"until": 1e300}, "/until"),
        ({"until": 10**400}, "/until"),
        ({"days": 1}, "/days"),
    ],
)
async def test_a_malformed_override_is_refused_with_its_location(
    mediator: Service, admin: httpx.AsyncClient, members: dict[str, Any], pointer: str
) -> None:
    name = await mediator.put_schema({"notes": {"fields": FIELDS}})
    refused = await admin.put(f"overrides/{name}/notes", json={**override("mongo"), **members})
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/invalid")
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert (await admin.get(f"overrides/{name}")).json() == {"items": []}


async def test_overrides_are_bounded_in_time_and_number(
    mediator: Service, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overrides, "OVERRIDES_PER_DATABASE", 3)
    fields = {f"f{i}": {"type": "string"} for i in range(4)}
    name = await mediator.put_schema({"notes": {"fields": fields}}, mode="advisory")
    path = f"overrides/{name}/notes"
    too_long = await admin.put(path, json=override("mongo", OVERRIDE_MAX_DAYS + 1))
    assert too_long.json()["errors"][0]["pointer"] == "/until"
    for field in fields:
        answer = await admin.put(f"{path}/{field}", json=override("mongo"))
        assert answer.status_code == (409 if field == "f3" else 200)


async def test_unknown_nodes_are_not_overridden(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    name = await mediator.put_schema({"notes": {"fields": FIELDS}})
    for path in (f"{name}/others", f"{name}/notes/others", "nothing/notes"):
        assert (await admin.put(f"overrides/{path}", json=override("mongo"))).status_code == 404
        assert (await admin.delete(f"overrides/{path}")).status_code == 404
    assert (await admin.get("overrides/nothing")).status_code == 404
    assert (await admin.put(f"overrides/{name}/No", json=override("mongo"))).status_code == 400


async def test_an_override_that_cannot_be_placed_is_refused(
    mediator: Service, admin: httpx.AsyncClient
) -> None:
    await mediator.mediator.control.amend("postgres", declared=["joins"])
    joined = {"annotations": [{"require": "joins"}], "fields": FIELDS}
    name = await mediator.put_schema({"notes": joined})
    refused = await admin.put(f"overrides/{name}/notes", json=override("mongo"))
    await mediator.mediator.control.amend("postgres", declared=[])
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/unplaceable")
    assert refused.json()["errors"] == [
        {"pointer": "override", "detail": "mongo lacks joins, required by notes"}
    ]
