"""Classes that are dropped with their objects, on explicit request."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mediator.base.errors import DataWouldMove, Invalid, NotFound
from mediator.control.port import ChangeOptions
from mediator.transactions import resolver
from tests.process.service import Service, field_on

SYSTEMS: Final = ("redis", "postgres", "mongo")
DROP: Final = ChangeOptions(drop=frozenset({"carts"}))


def classes(**carts: Any) -> dict[str, Any]:
    return {"notes": {"fields": {"title": field_on("redis")}}, "carts": {"fields": carts}}


def without_carts() -> dict[str, Any]:
    return {"classes": {"notes": classes()["notes"]}}


def fields_on_all() -> dict[str, Any]:
    return {f"on_{system}": field_on(system, group=f"g_{system}") for system in SYSTEMS}


@pytest.mark.parametrize("fields", [{"a": field_on("mongo")}, fields_on_all()], ids=["one", "all"])
async def test_a_class_is_dropped_with_its_objects(
    mediator: Service, fields: dict[str, Any]
) -> None:
    database = await mediator.put_schema(classes(**fields))
    control = mediator.mediator.control
    await mediator.create(database, "notes", "n", title="stays")
    for id_ in ("x", "y"):
        await mediator.create(database, "carts", id_, **dict.fromkeys(fields, "v"))
    with pytest.raises(DataWouldMove):
        await control.set_schema(database, without_carts())
    dry = await control.set_schema(database, without_carts(), options=DROP, dry_run=True)
    assert "The class carts is dropped; objects: 2." in dry.notes
    assert await mediator.values(database, "carts", "x") == dict.fromkeys(fields, "v")
    change = await control.set_schema(database, without_carts(), options=DROP)
    assert "The class carts is dropped; objects: 2." in change.notes
    with pytest.raises(NotFound):
        await mediator.get(database, "carts", "x")
    assert await mediator.values(database, "notes", "n") == {"title": "stays"}
    # A new class of this name has none of its objects.
    await control.set_schema(database, {"classes": classes(**fields)})
    with pytest.raises(NotFound):
        await mediator.get(database, "carts", "x")
    await mediator.create(database, "carts", "x", **dict.fromkeys(fields, "new"))
    assert await mediator.values(database, "carts", "x") == dict.fromkeys(fields, "new")


async def test_a_joint_write_that_has_just_ended_is_waited_for(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log removes finished transactions only after a moment."""
    monkeypatch.setattr(resolver, "REMOVED_WITHIN_S", 0.5)
    database = await mediator.put_schema(classes(**fields_on_all()))
    await mediator.create(database, "carts", "x", **dict.fromkeys(fields_on_all(), "v"))
    await mediator.mediator.control.set_schema(database, without_carts(), options=DROP)
    with pytest.raises(NotFound):
        await mediator.get(database, "carts", "x")


async def test_only_classes_missing_from_the_new_schema_can_be_dropped(mediator: Service) -> None:
    database = await mediator.put_schema(classes())
    for names, document, reason in (
        ({"carts"}, {"classes": classes()}, "carts is in the new schema"),
        ({"nope"}, without_carts(), "there is no class nope"),
    ):
        options = ChangeOptions(drop=frozenset(names))
        with pytest.raises(Invalid) as refused:
            await mediator.mediator.control.set_schema(database, document, options=options)
        assert [location.detail for location in refused.value.locations] == [reason]
