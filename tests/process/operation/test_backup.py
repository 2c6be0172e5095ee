"""Backups under writes, and restorations, on the three real servers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Conflict, NotFound
from mediator.control.port import ChangeOptions
from mediator.model.operations import Delete, Put
from mediator.schema.overrides import Override
from tests.process.operation.backups import (
    MERGE,
    Start,
    States,
    back_up,
    client_of,
    create_database,
    lines_of,
    put,
    restore,
    stored_objects,
    tags_of,
    values_of,
)
from tests.process.service import (
    Service,
    unique,
)


async def keep_writing(
    service: Service, database: str, writer: str, states: States, end: asyncio.Event
) -> None:
    """Write and delete the objects of one writer, and record each state."""
    step = 0
    while not end.is_set():
        step += 1
        id_, values = f"t{writer}{step % 40:03}", {"title": writer, "hits": step, "tags": [writer]}
        if step % 7 == 0:
            delete = Delete(database, "things", id_, unique("op"))
            with suppress(NotFound):
                await service.mediator.data.write(delete)
            continue
        for group, version in (await put(service, database, id_, **values)).items():
            states[id_, group][version or 0] = values


async def test_a_backup_taken_under_writes_is_restored_elsewhere(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    target = await installation()
    database = await create_database(mediator, 520)  # more than a page
    states: States = defaultdict(dict)
    for id_, object_ in (await stored_objects(mediator, database, "things")).items():
        for group, version in object_["versions"].items():
            states[id_, group][version] = object_["values"]
    end = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for writer in "01":
            tasks.create_task(keep_writing(mediator, database, writer, states, end))
        manifest = await back_up(mediator, tmp_path / "b", database)
        end.set()
    saved = lines_of(tmp_path / "b", database, "things")
    assert manifest.databases[database].classes["things"].lines == len(saved) >= 500
    groups = mediator.mediator.data.model.databases[database].classes["things"].groups
    for id_, line in saved.items():
        assert line["versions"].keys() == groups.keys(), "an object lacks a cache group"
        for group, version in line["versions"].items():
            expected = states[id_, group][version]
            stored = {name: line["values"].get(name) for name in groups[group]}
            assert stored == {name: expected.get(name) for name in groups[group]}
    report = await restore(target, tmp_path / "b")
    assert (report.created, report.put, report.deleted) == ([database], len(saved), 0)
    restored = await stored_objects(target, database, "things")
    assert values_of(restored) == values_of(saved)
    for id_, line in saved.items():
        assert all(restored[id_]["versions"][g] > v for g, v in line["versions"].items())


async def test_restoring_over_a_database_replaces_its_objects(
    installation: Start, tmp_path: Path
) -> None:
    service = await installation()
    database = await create_database(service)
    before = await stored_objects(service, database, "things")
    await back_up(service, tmp_path / "b", database)
    later_versions = await put(service, database, "t0003", title="later")
    for extra in ("a", "t0003x", "zz"):
        await put(service, database, extra, title="extra")
    await service.mediator.data.write(Delete(database, "things", "t0007", unique("op")))
    with pytest.raises(Conflict, match="--force"):
        await restore(service, tmp_path / "b")
    current = await stored_objects(service, database, "things")
    preview = await restore(service, tmp_path / "b", dry_run=True)
    assert (preview.overwritten, preview.put) == ([database], 30)
    assert await stored_objects(service, database, "things") == current
    report = await restore(service, tmp_path / "b", force=True)
    assert (report.put, report.deleted) == (30, 3)
    after = await stored_objects(service, database, "things")
    assert values_of(after) == values_of(before)
    assert all(v > (later_versions[g] or 0) for g, v in after["t0003"]["versions"].items())


async def test_objects_that_break_constraints_are_restored_as_they_were(
    installation: Start, tmp_path: Path
) -> None:
    """Constraints bind writes only: stored objects can break those added later."""
    service = await installation()
    database = await create_database(service, 3)
    control = service.mediator.control
    loose = (await control.schema(database)).document
    fields = loose["classes"]["things"]["fields"]
    bounds: dict[str, Any] = {"hits": {"minimum": 100}, "price": {"required": True}}
    bounded = {name: {**field, **bounds.get(name, {})} for name, field in fields.items()}
    tight = {**loose, "classes": {"things": {**loose["classes"]["things"], "fields": bounded}}}
    await put(service, database, "null", price=None)
    await control.set_schema(database, tight, options=ChangeOptions(unchecked=True))
    before = await stored_objects(service, database, "things")
    await back_up(service, tmp_path / "b", database)
    await control.set_schema(database, loose)
    await put(service, database, "t0001", hits=-1)
    await restore(service, tmp_path / "b", force=True)
    assert values_of(await stored_objects(service, database, "things")) == values_of(before)
    stored = (await control.schema(database)).document["classes"]["things"]["fields"]
    assert stored["hits"]["minimum"] == 100


async def test_the_time_of_the_last_write_is_restored(installation: Start, tmp_path: Path) -> None:
    service = await installation()
    updated = {"type": "timestamp", "updated": True, "required": True}
    database = await service.put_schema({"notes": {"fields": {"updated": updated}}})
    written_at = datetime(2001, 2, 3, tzinfo=UTC)
    await service.create(database, "notes", "a", updated=written_at)
    await back_up(service, tmp_path / "b", database)
    await restore(service, tmp_path / "b", force=True)
    assert await service.values(database, "notes", "a") == {"updated": written_at}


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_tag_from_before_matches_nothing_afterwards(
    installation: Start, tmp_path: Path, emptied: bool
) -> None:
    """Clients keep tags longer than lost objects are remembered."""
    service = await installation()
    database = await create_database(service, 3)
    async with client_of(service, database) as http:
        await back_up(service, tmp_path / "b", database)
        tags = {id_: await tags_of(http, id_) for id_ in ("t0000", "t0001", "t0002")}
        await http.put("t0001", json={"title": "changed after the backup"})
        changed_tags = await tags_of(http, "t0001")
        await http.put("lost", json={"title": "made after the backup", "hits": 1})
        tags["lost"] = await tags_of(http, "lost")
        assert (await http.delete("t0002")).status_code == 204
        if emptied:
            await service.mediator.control.delete_schema(database)
        await restore(service, tmp_path / "b", force=not emptied)
        assert (await http.get("lost")).status_code == 404
        await http.put("lost", json={"title": "something else", "hits": 1})
        for path, tag in [
            pair for by_path in (*tags.values(), changed_tags) for pair in by_path.items()
        ]:
            read = await http.get(path, headers={"if-none-match": tag})
            assert read.status_code == 200, f"{path}: {tag}"
            conditional = {"if-match": tag, **MERGE}
            patched = await http.patch(path, json={"hits": 9}, headers=conditional)
            assert patched.status_code == 412, f"{path}: {tag}"


async def test_classes_that_require_if_match_and_all_types_are_restored(
    installation: Start, tmp_path: Path
) -> None:
    service = await installation()
    document = {
        "require_if_match": True,
        "fields": {
            "b": {"type": "binary"},
            "d": {"type": "document"},
            "f": {"type": "float"},
            "m": {"type": "map", "items": "integer"},
            "n": {"type": "string"},
            "x": {"type": "decimal"},
        },
    }
    database = await service.put_schema(
        {"odd": document, "none": {"fields": {"n": {"type": "string"}}}}
    )
    route = await service.mediator.data.route(database, "odd")
    body = {"b": "AP8=", "d": {"a": [1, 1.5, None]}, "f": 1.0, "m": {"é": 2**62}, "n": None}
    values = route.codec.decode_object({**body, "x": "1.10"})
    await service.mediator.data.write(Put(database, "odd", "é\u00ff", unique("op"), values=values))
    await back_up(service, tmp_path / "b", database)
    before = await stored_objects(service, database, "odd")
    await service.create(database, "odd", "extra", n="x")
    await restore(service, tmp_path / "b", force=True)
    after = await stored_objects(service, database, "odd")
    assert values_of(after) == values_of(before)


async def test_systems_that_a_schema_requires_are_restored(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    target = await installation()
    fields = {"title": {"type": "string"}, "hits": {"type": "integer", "system": "mongo"}}
    database = await mediator.put_schema({"notes": {"system": "redis", "fields": fields}})
    await mediator.create(database, "notes", "x", title="t", hits=1)
    await back_up(mediator, tmp_path / "b", database)
    await restore(target, tmp_path / "b")
    assert target.systems_of(database, "notes") == ("redis", "mongo")
    documents = [
        (await service.mediator.control.schema(database)).document for service in (mediator, target)
    ]
    assert documents[0] == documents[1]
    assert await target.values(database, "notes", "x") == {"title": "t", "hits": 1}


PLAIN = {"fields": {"title": {"type": "string"}}}


class Tomorrow(SystemClock):
    def now(self) -> float:
        return super().now() + 24 * 3600


async def override(service: Service, database: str, **systems: str) -> dict[str, str]:
    """Override the placement of nodes for an hour; returns the end of each."""
    until = datetime.now(UTC) + timedelta(hours=1)
    overrides = {node: Override(system, "trial", until) for node, system in systems.items()}
    document, _ = await service.mediator.control.stored_schema(database)
    options = ChangeOptions(unchecked=True, overrides=overrides)
    change = await service.mediator.control.set_schema(database, document, options=options)
    return {node: entry["until"] for node, entry in change.overrides.items()}


async def overridden(service: Service, database: str) -> dict[str, str]:
    return {o["node"]: o["system"] for o in await service.mediator.control.overrides(database)}


async def test_overrides_are_restored_until_they_end(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    target = await installation()
    database = await mediator.put_schema(dict.fromkeys(("kept", "there"), PLAIN))
    until = await override(mediator, database, kept="mongo", there="redis")
    await mediator.create(database, "kept", "x", title="t")
    saved = await back_up(mediator, tmp_path / "b", database)
    [saved_database] = saved.databases.values()
    assert {
        node: entry.until.isoformat() for node, entry in saved_database.overrides.items()
    } == until
    await restore(target, tmp_path / "b")
    assert await overridden(target, database) == {"kept": "mongo", "there": "redis"}
    assert target.systems_of(database, "kept") == ("mongo",)
    assert await target.values(database, "kept", "x") == {"title": "t"}
    await override(target, database, there="postgres")
    await restore(target, tmp_path / "b", force=True)
    assert await overridden(target, database) == {"kept": "mongo", "there": "redis"}
    tomorrow = await installation(clock=Tomorrow())
    await restore(tomorrow, tmp_path / "b")
    assert await overridden(tomorrow, database) == {}


async def test_an_override_to_a_missing_system_is_not_restored(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    target = await installation()
    database = await mediator.put_schema({"kept": PLAIN})
    await override(mediator, database, kept="mongo")
    await back_up(mediator, tmp_path / "b", database)
    await target.mediator.control.unregister("mongo")
    await restore(target, tmp_path / "b")
    assert await overridden(target, database) == {}
