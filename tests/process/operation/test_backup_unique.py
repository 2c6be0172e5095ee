"""Restorations over objects that took unique values of others after the backup."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mediator.archive import class_target
from mediator.archive.files import LinesFile, Manifest, class_file, write_manifest
from mediator.base.errors import NotUnique
from mediator.data_plane import port
from mediator.model.operations import Condition, Create, Delete, Put
from tests.process.operation.backups import (
    Start,
    back_up,
    lines_in,
    restore,
    run_command,
    stored_objects,
    values_of,
)
from tests.process.service import Service, error_of, field_on, unique
from tests.process.transactions.crashable import Killed

IDS = [f"u{number}" for number in range(5)]
LAYOUTS = {
    "redis": ("redis", "redis"),
    "postgres": ("postgres", "postgres"),
    "mongo": ("mongo", "mongo"),
    "two systems": ("postgres", "redis"),
    "conditional writes": ("postgres", "postgres"),
}
CHUNKS = [*((layout, 2) for layout in LAYOUTS), ("two systems", 1), ("two systems", 200)]
"""Layouts, and how many objects are restored at once."""

EXISTS = Condition(present=True)


def users(layout: str) -> dict[str, Any]:
    keys, names = LAYOUTS[layout]
    fields = {
        "email": field_on(keys, unique=True, group="keys"),
        "tenant": field_on(names, group="names"),
        "name": field_on(names, group="names"),
    }
    strict = layout == "conditional writes"
    rules = {"unique": [["tenant", "name"]], "require_if_match": strict}
    return {"users": {"fields": fields, **rules}}


def values(email: str, name: str) -> dict[str, Any]:
    return {"email": f"{email}@x", "tenant": "t", "name": name}


async def put(service: Service, database: str, id_: str, **fields: Any) -> None:
    await service.mediator.data.write(Put(database, "users", id_, unique(), EXISTS, values=fields))


async def create_database(service: Service, layout: str) -> str:
    database = await service.put_schema(users(layout))
    for id_ in IDS:
        await service.create(database, "users", id_, **values(id_, id_))
    return database


async def rotate(service: Service, database: str) -> None:
    """Give each user the address of the next one, and the name of the one before."""
    for id_ in IDS:
        await put(service, database, id_, **values(f"none-{id_}", f"none-{id_}"))
    for n, id_ in enumerate(IDS):
        await put(service, database, id_, **values(IDS[(n + 1) % len(IDS)], IDS[n - 1]))


async def displace(service: Service, database: str) -> None:
    """Give the address of one user, and the name of another one, to new users."""
    for id_ in (IDS[0], IDS[3]):
        await service.mediator.data.write(Delete(database, "users", id_, unique(), EXISTS))
    await service.create(database, "users", "a", **values(IDS[3], IDS[0]))
    await service.create(database, "users", "u0x", **values(IDS[0], "z"))
    await service.create(database, "users", "z", **values("z", IDS[3]))


CHANGES = {"values are exchanged": (rotate, 0), "new objects have them": (displace, 3)}


@pytest.mark.parametrize(("layout", "chunk"), CHUNKS)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_forced_restoration_takes_unique_values_back(
    installation: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    change: str,
    chunk: int,
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    service, (apply, new_count) = await installation(), CHANGES[change]
    database = await create_database(service, layout)
    before = await stored_objects(service, database, "users")
    await back_up(service, tmp_path / "b", database)
    await apply(service, database)
    report = await restore(service, tmp_path / "b", force=True)
    assert (report.put, report.deleted) == (len(IDS), new_count)
    after = await stored_objects(service, database, "users")
    assert values_of(after) == values_of(before)
    for id_, saved in before.items():
        assert all(after[id_]["versions"][g] > v for g, v in saved["versions"].items())
    twin = Create(database, "users", "twin", unique(), values=values(IDS[0], "other"))
    assert isinstance(await error_of(service, twin), NotUnique)


@pytest.mark.parametrize("layout", ["postgres", "two systems"])
async def test_a_restoration_killed_at_any_step_can_be_repeated(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 2)
    service = await installation()
    database = await create_database(service, layout)
    before = await stored_objects(service, database, "users")
    await back_up(service, tmp_path / "b", database)
    data, steps = service.mediator.installation.data, 0
    batch, survived = data.batch, False
    while not survived:
        await rotate(service, database)
        remaining = steps

        async def counting_batch(*args: Any, **options: Any) -> Any:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise Killed
            return await batch(*args, **options)

        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(data, "batch", counting_batch)
            await asyncio.create_task(force_restore(service, tmp_path / "b"))
            survived = True
        await restore(service, tmp_path / "b", force=True)
        assert values_of(await stored_objects(service, database, "users")) == values_of(before)
        steps += 1
    assert steps > len(IDS)


async def force_restore(service: Service, directory: Path) -> None:
    await restore(service, directory, force=True)


async def change_hands(service: Service, database: str) -> None:
    """Give the first user's address to the last one, and the second user's name to the fourth."""
    await put(service, database, IDS[0], **values("new", IDS[0]))
    await put(service, database, IDS[4], **values(IDS[0], IDS[4]))
    await put(service, database, IDS[1], **values(IDS[1], "new"))
    await put(service, database, IDS[3], **values(IDS[3], IDS[1]))


async def back_up_during_changes(service: Service, directory: Path, database: str) -> None:
    """Back up while values change hands after the first page of two objects."""
    data = service.mediator.installation.data
    query, pages = data.query, []

    async def overtake(*args: Any, **options: Any) -> Any:
        pages.append(args)
        if len(pages) == 2:
            await change_hands(service, database)
        return await query(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(port, "PAGE", 2)
        patched.setattr(data, "query", overtake)
        await back_up(service, directory, database)


LATER_OWNERS = {
    IDS[0]: {"tenant": "t", "name": IDS[0]},
    IDS[1]: {"email": f"{IDS[1]}@x", "tenant": "t"},
    IDS[2]: values(IDS[2], IDS[2]),
    IDS[3]: values(IDS[3], IDS[1]),
    IDS[4]: values(IDS[0], IDS[4]),
}
"""The users of such a backup once restored: each value goes to its later owner."""


@pytest.mark.parametrize(("layout", "chunk"), CHUNKS)
@pytest.mark.parametrize("is_new", [False, True])
async def test_values_that_changed_hands_during_the_backup_go_to_who_had_them_later(
    installation: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    chunk: int,
    is_new: bool,
) -> None:
    """A backup is not a snapshot of one instant, so it can have a value twice."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    service = await installation()
    database = await create_database(service, layout)
    await back_up_during_changes(service, tmp_path / "b", database)
    target = await installation() if is_new else service
    report = await restore(target, tmp_path / "b", force=not is_new)
    assert values_of(await stored_objects(target, database, "users")) == LATER_OWNERS
    assert (report.put, report.superseded) == (len(IDS), 2)
    assert sorted(report.superseded_of) == ["users/u0: email", "users/u1: name"]
    twin = Create(database, "users", "twin", unique(), values=values(IDS[0], "other"))
    assert isinstance(await error_of(target, twin), NotUnique)
    second = await restore(target, tmp_path / "b", force=True)
    assert values_of(await stored_objects(target, database, "users")) == LATER_OWNERS
    assert second.superseded == 2


@pytest.mark.parametrize("chunk", [1, 2, 200])
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_value_that_changed_hands_many_times_goes_to_who_had_it_last(
    installation: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    is_new: bool,
) -> None:
    """The field is required, yet missing where its value is not restored."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    service = await installation()
    fields = {"email": field_on("postgres", unique=True, required=True)}
    database = await service.put_schema({"users": {"fields": fields}})
    for id_ in IDS:
        await service.create(database, "users", id_, email=id_)
    await back_up_with_one_value(service, tmp_path / "b", database)
    target = await installation() if is_new else service
    report = await restore(target, tmp_path / "b", force=not is_new)
    assert report.superseded == len(IDS) - 1
    expected = {**{id_: {} for id_ in IDS}, IDS[-1]: {"email": "same"}}
    assert values_of(await stored_objects(target, database, "users")) == expected


async def back_up_with_one_value(service: Service, directory: Path, database: str) -> None:
    """Make a backup in which all users have the same e-mail address."""
    manifest = await back_up(service, directory, database)
    lines = lines_in(directory / class_file(database, "users"))
    same = [{**line, "values": {"email": "same"}} for line in lines]
    rewrite(directory, manifest, database, same)


def rewrite(directory: Path, manifest: Manifest, database: str, lines: list[Any]) -> None:
    """Replace the objects of a backup."""
    path, entry = directory / class_file(database, "users"), manifest.databases[database]
    path.unlink()
    with LinesFile(path) as file:
        file.write(lines)
        entry = replace(entry, classes={"users": file.finish()})
    write_manifest(directory, replace(manifest, databases={database: entry}))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_value_goes_to_who_had_it_later_whichever_is_put_first(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """The value is the only one of a cache group."""
    service, target = await installation(), await installation()
    database = await create_database(service, layout)
    await back_up_during_changes(service, tmp_path / "b", database)
    data = target.mediator.installation.data
    batch = data.batch

    async def reversed_batch(writes: Sequence[Any]) -> list[Any]:
        return [(await batch([write]))[0] for write in reversed(writes)][::-1]

    monkeypatch.setattr(data, "batch", reversed_batch)
    report = await restore(target, tmp_path / "b")
    assert values_of(await stored_objects(target, database, "users")) == LATER_OWNERS
    assert sorted(report.superseded_of) == ["users/u0: email", "users/u1: name"]


@pytest.mark.parametrize("chunk", [1, 200])
@pytest.mark.parametrize("other", ["a", "z"])
async def test_a_value_of_an_object_that_is_not_restored_refuses_the_restoration(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, other: str
) -> None:
    """Another client writes while a new database is restored."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    service, target = await installation(), await installation()
    database = await create_database(service, "postgres")
    await back_up(service, tmp_path / "b", database)
    batch, are_written = target.mediator.installation.data.batch, False

    async def overtake(*args: Any, **options: Any) -> Any:
        nonlocal are_written
        if not are_written:
            are_written = True
            await target.create(database, "users", other, **values(IDS[4], "z"))
        return await batch(*args, **options)

    monkeypatch.setattr(target.mediator.installation.data, "batch", overtake)
    with pytest.raises(NotUnique):
        await restore(target, tmp_path / "b")
    assert await target.values(database, "users", other) == values(IDS[4], "z")


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_object_that_a_client_has_written_since_it_was_put_keeps_its_values(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 1)
    service, target = await installation(), await installation()
    database = await create_database(service, layout)
    await back_up(service, tmp_path / "b", database)
    batch, calls = target.mediator.installation.data.batch, []

    async def overtake(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            await put(target, database, IDS[0], **values(IDS[4], "z"))
        return await batch(*args, **options)

    monkeypatch.setattr(target.mediator.installation.data, "batch", overtake)
    with pytest.raises(NotUnique):
        await restore(target, tmp_path / "b")
    assert await target.values(database, "users", IDS[0]) == values(IDS[4], "z")


async def test_a_write_of_a_client_while_an_object_loses_a_value_is_kept(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 1)
    service, target = await installation(), await installation()
    database = await create_database(service, "postgres")
    manifest = await back_up(service, tmp_path / "b", database)
    lines = lines_in(tmp_path / "b" / class_file(database, "users"))
    same = {**lines[1], "values": {**lines[1]["values"], "email": f"{IDS[0]}@x"}}
    rewrite(tmp_path / "b", manifest, database, [lines[0], same, *lines[2:]])
    batch, are_written = target.mediator.installation.data.batch, False

    async def overtake(writes: Sequence[Any]) -> Any:
        nonlocal are_written
        if (
            not are_written
            and writes
            and writes[0].id == IDS[0]
            and "email" not in writes[0].values
        ):
            are_written = True
            await put(target, database, IDS[0], **values("of a client", "z"))
        return await batch(writes)

    monkeypatch.setattr(target.mediator.installation.data, "batch", overtake)
    await restore(target, tmp_path / "b")
    assert are_written
    restored = values_of(await stored_objects(target, database, "users"))
    assert restored[IDS[0]] == values("of a client", "z")
    assert restored[IDS[1]] == values(IDS[0], IDS[1])


async def test_the_command_names_who_lost_a_value(installation: Start, tmp_path: Path) -> None:
    """Ids are data, neither markup nor terminal commands."""
    service, ids = await installation(), ("[bold]\u202ea", "b")
    fields = {"email": field_on("postgres", unique=True)}
    database = await service.put_schema({"users": {"fields": fields}})
    for id_ in ids:
        await service.create(database, "users", id_, email=id_)
    await back_up_with_one_value(service, tmp_path / "b", database)
    output = " ".join(
        (await run_command(service, "restore", str(tmp_path / "b"), "--force")).split()
    )
    assert "that took them later: 1, of users/[bold]\\u202ea: email" in output
