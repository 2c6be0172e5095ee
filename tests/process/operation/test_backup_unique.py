"""Restorations over objects that have got unique values of others since the backup."""

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
from tests.process.operation.backups import Start, back_up, done, held, lines_in, restore, values_of
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
"""In how many objects at once each layout is restored."""

THERE = Condition(present=True)


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


async def put(of: Service, database: str, id_: str, **of_user: Any) -> None:
    await of.mediator.data.write(Put(database, "users", id_, unique(), THERE, values=of_user))


async def filled(of: Service, layout: str) -> str:
    database = await of.put_schema(users(layout))
    for id_ in IDS:
        await of.create(database, "users", id_, **values(id_, id_))
    return database


async def rotate(of: Service, database: str) -> None:
    """Give each user the address of the next one, and the name of the one before."""
    for id_ in IDS:
        await put(of, database, id_, **values(f"none-{id_}", f"none-{id_}"))
    for n, id_ in enumerate(IDS):
        await put(of, database, id_, **values(IDS[(n + 1) % len(IDS)], IDS[n - 1]))


async def displace(of: Service, database: str) -> None:
    """Give the address of one user, and the name of another one, to new users."""
    for id_ in (IDS[0], IDS[3]):
        await of.mediator.data.write(Delete(database, "users", id_, unique(), THERE))
    await of.create(database, "users", "a", **values(IDS[3], IDS[0]))
    await of.create(database, "users", "u0x", **values(IDS[0], "z"))
    await of.create(database, "users", "z", **values("z", IDS[3]))


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
    own, (make, new) = await installation(), CHANGES[change]
    database = await filled(own, layout)
    before = await held(own, database, "users")
    await back_up(own, tmp_path / "b", database)
    await make(own, database)
    report = await restore(own, tmp_path / "b", force=True)
    assert (report.put, report.deleted) == (len(IDS), new)
    after = await held(own, database, "users")
    assert values_of(after) == values_of(before)
    for id_, saved in before.items():
        assert all(after[id_]["versions"][g] > v for g, v in saved["versions"].items())
    twin = Create(database, "users", "twin", unique(), values=values(IDS[0], "other"))
    assert isinstance(await error_of(own, twin), NotUnique)


@pytest.mark.parametrize("layout", ["postgres", "two systems"])
async def test_killed_at_any_of_its_steps_it_may_be_repeated(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 2)
    own = await installation()
    database = await filled(own, layout)
    before = await held(own, database, "users")
    await back_up(own, tmp_path / "b", database)
    data, steps = own.mediator.installation.data, 0
    batch, survived = data.batch, False
    while not survived:
        await rotate(own, database)
        left = steps

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return await batch(*args, **more)

        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(data, "batch", counted)
            await asyncio.create_task(restored(own, tmp_path / "b"))
            survived = True
        await restore(own, tmp_path / "b", force=True)
        assert values_of(await held(own, database, "users")) == values_of(before)
        steps += 1
    assert steps > len(IDS)


async def restored(own: Service, directory: Path) -> None:
    await restore(own, directory, force=True)


async def change_hands(of: Service, database: str) -> None:
    """Give the address of the first user to the last one, and the name of another to another."""
    await put(of, database, IDS[0], **values("new", IDS[0]))
    await put(of, database, IDS[4], **values(IDS[0], IDS[4]))
    await put(of, database, IDS[1], **values(IDS[1], "new"))
    await put(of, database, IDS[3], **values(IDS[3], IDS[1]))


async def overtaken(of: Service, directory: Path, database: str) -> None:
    """Back up, while values change hands after the first page of two objects."""
    data = of.mediator.installation.data
    query, pages = data.query, []

    async def overtake(*args: Any, **more: Any) -> Any:
        pages.append(args)
        if len(pages) == 2:
            await change_hands(of, database)
        return await query(*args, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(port, "PAGE", 2)
        patched.setattr(data, "query", overtake)
        await back_up(of, directory, database)


LATER = {
    IDS[0]: {"tenant": "t", "name": IDS[0]},
    IDS[1]: {"email": f"{IDS[1]}@x", "tenant": "t"},
    IDS[2]: values(IDS[2], IDS[2]),
    IDS[3]: values(IDS[3], IDS[1]),
    IDS[4]: values(IDS[0], IDS[4]),
}
"""What a backup has of which that is `overtaken`, if each value is left to who had it later."""


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
    """A backup is no snapshot of one instant, so it may have a value twice."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    own = await installation()
    database = await filled(own, layout)
    await overtaken(own, tmp_path / "b", database)
    to = await installation() if is_new else own
    report = await restore(to, tmp_path / "b", force=not is_new)
    assert values_of(await held(to, database, "users")) == LATER
    assert (report.put, report.superseded) == (len(IDS), 2)
    assert sorted(report.superseded_of) == ["users/u0: email", "users/u1: name"]
    twin = Create(database, "users", "twin", unique(), values=values(IDS[0], "other"))
    assert isinstance(await error_of(to, twin), NotUnique)
    again = await restore(to, tmp_path / "b", force=True)
    assert values_of(await held(to, database, "users")) == LATER
    assert again.superseded == 2


@pytest.mark.parametrize("chunk", [1, 2, 200])
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_value_that_changed_hands_many_times_goes_to_who_had_it_last(
    installation: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    is_new: bool,
) -> None:
    """Its field is required, and is missing all the same where the value is not restored."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    own = await installation()
    fields = {"email": field_on("postgres", unique=True, required=True)}
    database = await own.put_schema({"users": {"fields": fields}})
    for id_ in IDS:
        await own.create(database, "users", id_, email=id_)
    await back_up_with_one_value(own, tmp_path / "b", database)
    to = await installation() if is_new else own
    report = await restore(to, tmp_path / "b", force=not is_new)
    assert report.superseded == len(IDS) - 1
    expected = {**{id_: {} for id_ in IDS}, IDS[-1]: {"email": "same"}}
    assert values_of(await held(to, database, "users")) == expected


async def back_up_with_one_value(own: Service, directory: Path, database: str) -> None:
    """Make a backup in which all users have the same e-mail address."""
    manifest = await back_up(own, directory, database)
    lines = lines_in(directory / class_file(database, "users"))
    same = [{**line, "values": {"email": "same"}} for line in lines]
    rewrite(directory, manifest, database, same)


def rewrite(directory: Path, manifest: Manifest, database: str, lines: list[Any]) -> None:
    """Replace the objects of a backup."""
    path, part = directory / class_file(database, "users"), manifest.databases[database]
    path.unlink()
    with LinesFile(path) as file:
        file.write(lines)
        part = replace(part, classes={"users": file.finish()})
    write_manifest(directory, replace(manifest, databases={database: part}))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_value_goes_to_who_had_it_later_whichever_is_put_first(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """The value is the only one of a cache group."""
    own, to = await installation(), await installation()
    database = await filled(own, layout)
    await overtaken(own, tmp_path / "b", database)
    data = to.mediator.installation.data
    batch = data.batch

    async def backwards(writes: Sequence[Any]) -> list[Any]:
        return [(await batch([each]))[0] for each in reversed(writes)][::-1]

    monkeypatch.setattr(data, "batch", backwards)
    report = await restore(to, tmp_path / "b")
    assert values_of(await held(to, database, "users")) == LATER
    assert sorted(report.superseded_of) == ["users/u0: email", "users/u1: name"]


@pytest.mark.parametrize("chunk", [1, 200])
@pytest.mark.parametrize("other", ["a", "z"])
async def test_a_value_of_an_object_that_is_not_restored_refuses_the_restoration(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, other: str
) -> None:
    """Another client writes while a database is restored that was not there."""
    monkeypatch.setattr(class_target, "CHUNK", chunk)
    own, to = await installation(), await installation()
    database = await filled(own, "postgres")
    await back_up(own, tmp_path / "b", database)
    batch, are_written = to.mediator.installation.data.batch, False

    async def overtake(*args: Any, **more: Any) -> Any:
        nonlocal are_written
        if not are_written:
            are_written = True
            await to.create(database, "users", other, **values(IDS[4], "z"))
        return await batch(*args, **more)

    monkeypatch.setattr(to.mediator.installation.data, "batch", overtake)
    with pytest.raises(NotUnique):
        await restore(to, tmp_path / "b")
    assert await to.values(database, "users", other) == values(IDS[4], "z")


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_object_that_a_client_has_written_since_it_was_put_keeps_its_values(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 1)
    own, to = await installation(), await installation()
    database = await filled(own, layout)
    await back_up(own, tmp_path / "b", database)
    batch, calls = to.mediator.installation.data.batch, []

    async def overtake(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            await put(to, database, IDS[0], **values(IDS[4], "z"))
        return await batch(*args, **more)

    monkeypatch.setattr(to.mediator.installation.data, "batch", overtake)
    with pytest.raises(NotUnique):
        await restore(to, tmp_path / "b")
    assert await to.values(database, "users", IDS[0]) == values(IDS[4], "z")


async def test_what_a_client_writes_while_an_object_loses_a_value_is_kept(
    installation: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_target, "CHUNK", 1)
    own, to = await installation(), await installation()
    database = await filled(own, "postgres")
    manifest = await back_up(own, tmp_path / "b", database)
    lines = lines_in(tmp_path / "b" / class_file(database, "users"))
    same = {**lines[1], "values": {**lines[1]["values"], "email": f"{IDS[0]}@x"}}
    rewrite(tmp_path / "b", manifest, database, [lines[0], same, *lines[2:]])
    batch, are_written = to.mediator.installation.data.batch, False

    async def overtake(writes: Sequence[Any]) -> Any:
        nonlocal are_written
        if (
            not are_written
            and writes
            and writes[0].id == IDS[0]
            and "email" not in writes[0].values
        ):
            are_written = True
            await put(to, database, IDS[0], **values("of a client", "z"))
        return await batch(writes)

    monkeypatch.setattr(to.mediator.installation.data, "batch", overtake)
    await restore(to, tmp_path / "b")
    assert are_written
    found = values_of(await held(to, database, "users"))
    assert found[IDS[0]] == values("of a client", "z")
    assert found[IDS[1]] == values(IDS[0], IDS[1])


async def test_the_command_names_who_lost_a_value(installation: Start, tmp_path: Path) -> None:
    """Ids are data, and neither markup nor commands for the terminal."""
    own, ids = await installation(), ("[bold]\u202ea", "b")
    fields = {"email": field_on("postgres", unique=True)}
    database = await own.put_schema({"users": {"fields": fields}})
    for id_ in ids:
        await own.create(database, "users", id_, email=id_)
    await back_up_with_one_value(own, tmp_path / "b", database)
    output = " ".join((await done(own, "restore", str(tmp_path / "b"), "--force")).split())
    assert "that are missing: 1, of users/[bold]\\u202ea: email" in output
