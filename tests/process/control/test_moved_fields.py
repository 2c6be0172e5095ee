"""Fields dropped after their values were copied: concurrent writes lose no value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.telemetry.metrics import Metrics
from mediator.base.errors import Conflict, ConstraintViolated, Invalid, Unavailable
from mediator.control import moves
from mediator.control.copy_report import CopyRules, Fallback, Kind
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.model.operations import Create, Update
from mediator.schema.copies import parse_copy
from mediator.schema.json_text import as_text
from tests.process.control.test_placing_anew import follow, late, pause_at, wait_for_hold
from tests.process.service import Service, error_of, field_on, unique

__all__ = ["late"]  # a fixture

TEXT: Final = "missions.player.account:account"
MOVE: Final = ChangeOptions(move=(parse_copy(TEXT),))
LOCATION: Final = {"location": "/classes/players/fields/account", "constraint": "move"}
SYSTEMS: Final = ("redis", "postgres", "mongo", "all")


def game(system: str, *, moved: bool = False) -> dict[str, Any]:
    """Return players and their missions, on one system or on two."""
    source, target = ("postgres", "mongo") if system == "all" else (system, system)
    players = {"name": field_on(source), "account": field_on(source, "integer", group="account")}
    missions = {
        "player": field_on(target, "reference", to="players"),
        "account": field_on(target, index=True),
        "rank": field_on(target, "integer"),
    }
    if moved:
        del players["account"]
    return {"classes": {"players": {"fields": players}, "missions": {"fields": missions}}}


async def fill_database(mediator: Service, system: str) -> str:
    """Return a game; one mission lacks the account of its player."""
    name = unique("db")
    await mediator.mediator.control.set_schema(name, game(system))
    await mediator.create(name, "players", "ada", name="Ada", account=7)
    await mediator.create(name, "players", "bob", name="Bob")
    await mediator.create(name, "missions", "a", player="ada")
    await mediator.create(name, "missions", "b", player="bob")
    await mediator.create(name, "missions", "o", player="nobody")
    return name


async def copy(mediator: Service, name: str, rules: CopyRules) -> None:
    keep_orphans = replace(rules, orphans=Fallback.KEEP)
    await mediator.mediator.copying.run(name, parse_copy(TEXT), keep_orphans, for_s=60.0)


async def move(
    mediator: Service, name: str, system: str = "postgres", **options: Any
) -> SchemaChange:
    options = {"options": MOVE, **options}
    return await mediator.mediator.control.set_schema(name, game(system, moved=True), **options)


def account_of(name: str, account: int) -> Update:
    return Update(name, "players", "ada", unique(), values={"account": account})


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_field_goes_once_its_values_are_copied(mediator: Service, system: str) -> None:
    name = await fill_database(mediator, system)
    dry = await move(mediator, name, system, dry_run=True)
    violation = {**LOCATION, "count": 1, "checked": 3, "sample": ["a"]}
    assert dry.violations == (violation,)
    assert "The field players.account is dropped; objects that lose a value: 1." in dry.notes
    route = mediator.mediator.data.model.databases[name]
    with pytest.raises(ConstraintViolated, match="are not in the other one") as refused:
        await move(mediator, name, system)
    assert mediator.mediator.data.model.databases[name] is route  # nothing was held for it
    assert refused.value.locations[0].pointer == "/classes/players/fields/account/move"
    assert await error_of(mediator, account_of(name, 8)) is None
    await copy(mediator, name, CopyRules())
    assert (await move(mediator, name, system, dry_run=True)).violations == ()
    await move(mediator, name, system)
    assert await mediator.values(name, "players", "ada") == {"name": "Ada"}
    accounts = {id_: await mediator.values(name, "missions", id_) for id_ in "abo"}
    assert accounts == {
        "a": {"player": "ada", "account": "8"},
        "b": {"player": "bob"},
        "o": {"player": "nobody"},
    }


async def test_a_value_that_was_written_after_the_copy_is_not_lost(mediator: Service) -> None:
    name = await fill_database(mediator, "redis")
    await copy(mediator, name, CopyRules())
    assert await error_of(mediator, account_of(name, 9)) is None
    with pytest.raises(ConstraintViolated):
        await move(mediator, name, "redis")
    await copy(mediator, name, CopyRules(overwrite=True))
    await move(mediator, name, "redis")
    assert (await mediator.values(name, "missions", "a") or {})["account"] == "9"


@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
async def test_documents_are_compared_as_json(mediator: Service, system: str) -> None:
    """In Python `True == 1`, which would lose a document; the order of keys does not matter."""

    def carts(*names: str) -> dict[str, Any]:
        document, of_documents = field_on(system, "document"), {"items": "document"}
        fields: dict[str, Any] = {}
        for name in names:
            fields[f"{name}_document"] = document
            fields[f"{name}_map"] = field_on(system, "map", **of_documents)
            fields[f"{name}_list"] = field_on(system, "list", **of_documents)
        return {"classes": {"carts": {"fields": fields}}}

    name = await mediator.put_schema(carts("old", "new")["classes"])
    old, equal, other = {"a": True, "b": 1}, {"b": 1, "a": True}, {"a": 1, "b": True}

    def values(prefix: str, value: Any) -> dict[str, Any]:
        return {
            f"{prefix}_document": value,
            f"{prefix}_map": {"k": value},
            f"{prefix}_list": [value],
        }

    for id_, new in (("equal", equal), ("other", other)):
        await mediator.create(name, "carts", id_, **values("old", old), **values("new", new))
    texts = [f"carts.old_{kind}:new_{kind}" for kind in ("document", "map", "list")]
    move = ChangeOptions(move=tuple(map(parse_copy, texts)))
    with pytest.raises(ConstraintViolated) as refused:
        await mediator.mediator.control.set_schema(name, carts("new"), options=move)
    assert [(v["count"], v["sample"]) for v in refused.value.extra["violations"]] == [
        (1, ["other"])
    ] * 3
    for text in texts:
        overwrite = CopyRules(overwrite=True)
        report = await mediator.mediator.copying.run(name, parse_copy(text), overwrite, for_s=60.0)
        assert (report.counts[Kind.CHANGED], report.counts[Kind.EQUAL]) == (1, 1)
    await mediator.mediator.control.set_schema(name, carts("new"), options=move)
    moved = await mediator.values(name, "carts", "other") or {}
    assert as_text(moved) == as_text(values("new", old))


async def test_a_value_that_is_written_just_before_the_hold_is_found(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await fill_database(mediator, "postgres")
    await copy(mediator, name, CopyRules())
    hold = mediator.mediator.stored_schemas.hold

    async def write_then_hold(*arguments: Any) -> Any:
        assert await error_of(mediator, account_of(name, 9)) is None
        return await hold(*arguments)

    monkeypatch.setattr(mediator.mediator.stored_schemas, "hold", write_then_hold)
    with pytest.raises(ConstraintViolated):
        await move(mediator, name)
    monkeypatch.undo()
    # The hold has ended with the refusal.
    assert await error_of(mediator, account_of(name, 10)) is None
    assert (await mediator.values(name, "players", "ada") or {})["account"] == 10


async def test_objects_created_in_an_empty_class_before_the_hold_are_compared(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("db")
    await mediator.mediator.control.set_schema(name, game("postgres"))
    await mediator.create(name, "players", "ada", name="Ada", account=7)
    hold = mediator.mediator.stored_schemas.hold

    async def create_then_hold(*arguments: Any) -> Any:
        await mediator.create(name, "missions", "a", player="ada")
        return await hold(*arguments)

    monkeypatch.setattr(mediator.mediator.stored_schemas, "hold", create_then_hold)
    with pytest.raises(ConstraintViolated):
        await move(mediator, name)
    assert (await mediator.values(name, "players", "ada") or {})["account"] == 7


async def test_no_replica_writes_while_values_are_compared(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await fill_database(mediator, "postgres")
    await copy(mediator, name, CopyRules())
    await follow(late)
    pause = pause_at(monkeypatch, mediator.mediator.cutover, "check_unwritten", after=True)
    change = asyncio.create_task(move(mediator, name))
    await wait_for_hold(mediator, late)
    # It has not adopted the hold yet: the comparison waits for it and then finds the write.
    assert await error_of(late, account_of(name, 7)) is None
    await follow(late)
    await pause.reached.wait()
    mission = Create(name, "missions", "c", unique(), values={"player": "ada"})
    for replica in (mediator, late):
        for operation in (account_of(name, 8), mission):
            assert isinstance(await error_of(replica, operation), Unavailable)
    pause.open.set()
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    await change
    for replica in (mediator, late):
        await replica.mediator.schemas.refresh()
        assert isinstance(await error_of(replica, account_of(name, 8)), Conflict)
        assert await mediator.values(name, "players", "ada") == {"name": "Ada"}


async def test_a_class_that_is_too_large_to_compare_is_refused(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await fill_database(mediator, "postgres")
    await copy(mediator, name, CopyRules())
    monkeypatch.setattr(moves, "MOVE_S", 0.0)
    with pytest.raises(Conflict, match="Not all objects of missions were checked"):
        await move(mediator, name)
    assert (await mediator.values(name, "players", "ada") or {})["account"] == 7


async def test_moves_that_are_impossible_are_refused(mediator: Service) -> None:
    name = await fill_database(mediator, "postgres")
    control = mediator.mediator.control
    without = game("postgres", moved=True)
    del without["classes"]["missions"]["fields"]["account"]
    cases = [
        (game("postgres"), MOVE, "drop"),  # the source stays
        (without, MOVE, "move"),  # the target goes
        (game("postgres", moved=True), replace(MOVE, rename={"players": {"name": "n"}}), "move"),
        (game("postgres"), ChangeOptions(move=(parse_copy("missions.rank:nothing"),)), "move"),
    ]
    for document, options, pointer in cases:
        with pytest.raises(Invalid) as refused:
            await control.set_schema(name, document, options=options)
        assert refused.value.locations[0].pointer == pointer
    with pytest.raises(Invalid, match="cannot be copied"):
        await control.set_schema(unique("db"), game("postgres", moved=True), options=MOVE)


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    context = AdminContext(copying=mediator.mediator.copying)
    app = create_admin_app(mediator.mediator.control, Metrics().registry, context)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    url = "http://admin/admin/v1"
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client


async def test_a_field_is_moved_over_http(mediator: Service, admin: httpx.AsyncClient) -> None:
    name = await fill_database(mediator, "postgres")
    schema, document = f"/schemas/{name}", game("postgres", moved=True)
    early = await admin.put(schema, json=document, params={"move": TEXT})
    assert (early.status_code, early.json()["type"]) == (409, "/problems/constraint-violated")
    assert early.json()["violations"][0]["sample"] == ["a"]
    copies = f"/copies/{name}"
    refused = await admin.post(copies, params={"copy": TEXT})
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "/problems/conflict")
    assert (problem["next"], problem["objects"]) == (None, 0)
    parameters = {"copy": TEXT, "orphans": "keep"}
    dry = (await admin.post(copies, params={**parameters, "dry_run": "true"})).json()
    report = (await admin.post(copies, params=parameters)).json()
    assert report == dry
    assert (report["changed"], report["empty"], report["orphans"]) == (1, 1, 1)
    assert report["sample"] == {
        "changed": ["a"],
        "orphans": ["o"],
        "duplicates": [],
        "conflicts": [],
    }
    page = (await admin.post(copies, params={**parameters, "after": "a"})).json()
    assert (page["objects"], page["equal"]) == (2, 0)
    moved = await admin.put(schema, json=document, params={"move": TEXT})
    assert moved.status_code == 200, moved.text


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ({"copy": "players"}, "copy"),
        ({"copy": "missions.player.account:rank", "orphans": "other"}, "orphans"),
        ({"copy": "missions.player.account:ranks"}, "copy"),
        ({"copy": TEXT, "conflicts": "default"}, "conflicts"),
        ({"copy": TEXT, "after": "a/b"}, "after"),
        ({"copy": "x" * 401}, "copy"),
        ({}, "copy"),
    ],
)
async def test_invalid_copy_requests_are_refused(
    mediator: Service, admin: httpx.AsyncClient, parameters: dict[str, str], pointer: str
) -> None:
    name = await fill_database(mediator, "postgres")
    refused = await admin.post(f"/copies/{name}", params=parameters)
    assert refused.status_code in (400, 422), refused.text
    assert pointer in refused.json()["errors"][0]["pointer"]
    nowhere = await admin.post("/copies/nowhere", params={"copy": TEXT})
    assert nowhere.status_code == 404
