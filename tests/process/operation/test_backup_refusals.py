"""Backups that are refused, damaged or cannot be restored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mediator.archive import files
from mediator.archive.backup import ArchiveProgress, Backup
from mediator.archive.files import MANIFEST, ArchiveInvalid, Manifest, read_manifest, write_manifest
from mediator.archive.restore import Restoration
from mediator.base.errors import Conflict, NotFound, Unplaceable
from mediator.catalogue.rows import CatalogueRows
from tests.process.operation.backups import (
    SPREAD,
    Start,
    back_up,
    create_database,
    ignore,
    put,
    restore,
    stored_objects,
)
from tests.process.service import (
    Service,
    field_on,
)

LONG = 20_000
"""Bytes: longer than the line of any other object."""


@pytest.fixture
async def saved(installation: Start, tmp_path: Path) -> tuple[Service, Path, str]:
    """An emptied installation, and a backup of its content."""
    service = await installation()
    database = await create_database(service, 3)
    await back_up(service, tmp_path / "b")
    await service.mediator.control.delete_schema(database)
    return service, tmp_path / "b", database


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "no manifest", "manifest flipped"])
async def test_a_damaged_backup_is_refused_before_anything_is_done(
    saved: tuple[Service, Path, str], how: str
) -> None:
    service, directory, database = saved
    file, manifest = directory / database / "things.ndjson.gz", directory / MANIFEST
    match how:
        case "flipped":
            flip(file)
        case "cut":
            file.write_bytes(file.read_bytes()[:-1])
        case "missing":
            file.unlink()
        case "no manifest":
            manifest.unlink()
        case _:
            manifest.write_bytes(manifest.read_bytes().replace(b'"lines": 3', b'"lines": 4', 1))
    for dry_run in (True, False):
        with pytest.raises(ArchiveInvalid):
            await restore(service, directory, dry_run=dry_run)
    assert await service.mediator.control.databases() == []


async def test_a_manifest_with_a_path_outside_is_refused(saved: tuple[Service, Path, str]) -> None:
    _, directory, database = saved
    manifest = Manifest.from_json((directory / MANIFEST).read_bytes())
    entry = manifest.databases[database]
    altered = replace(manifest, databases={"../../etc": entry}).to_json()
    with pytest.raises(ArchiveInvalid):
        Manifest.from_json(altered)


async def test_an_object_too_long_for_a_line_fails_the_backup_and_is_named(
    saved: tuple[Service, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _, _ = saved
    database = await create_database(service, 3)
    await put(service, database, "long", title="x" * LONG)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", LONG)
    with pytest.raises(Conflict, match=f"{database}/things/long cannot be saved"):
        await back_up(service, tmp_path / "c")
    assert not (tmp_path / "c" / MANIFEST).exists()


async def test_a_line_that_is_too_long_is_refused_before_anything_is_deleted(
    saved: tuple[Service, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _, _ = saved
    database = await create_database(service, 3)
    await put(service, database, "long", title="x" * LONG)
    await back_up(service, tmp_path / "c")
    await put(service, database, "newer", title="not in the backup")
    before = await stored_objects(service, database, "things")
    monkeypatch.setattr(files, "MAX_LINE_BYTES", LONG)
    for dry_run in (True, False):
        with pytest.raises(ArchiveInvalid, match=r"Line 1 of things\.ndjson\.gz is too long"):
            await restore(service, tmp_path / "c", force=True, dry_run=dry_run)
    assert await stored_objects(service, database, "things") == before


async def test_backups_are_readable_by_their_owner_only(saved: tuple[Service, Path, str]) -> None:
    _, directory, _ = saved
    paths = [path for path in directory.rglob("*") if path.is_file()]
    assert len(paths) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory, *paths))
    content = b"".join(p.read_bytes() for p in paths if p.suffix == ".json")
    assert b"://" not in content


async def test_a_backup_into_a_directory_that_is_not_empty_is_refused(
    saved: tuple[Service, Path, str],
) -> None:
    service, directory, _ = saved
    before = (directory / MANIFEST).read_bytes()
    with pytest.raises(ArchiveInvalid, match="not empty"):
        await back_up(service, directory)
    assert (directory / MANIFEST).read_bytes() == before


async def test_a_missing_database_is_neither_saved_nor_restored(
    saved: tuple[Service, Path, str], tmp_path: Path
) -> None:
    service, directory, _ = saved
    with pytest.raises(NotFound):
        await back_up(service, tmp_path / "c", "nowhere")
    with pytest.raises(NotFound):
        await Restoration(service.mediator.installation, ignore).run(directory, ["nowhere"])


async def test_a_clock_that_is_behind_restores_nothing(
    saved: tuple[Service, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, directory, _ = saved
    monkeypatch.setattr(
        service.mediator.installation.clock, "now", lambda: 1_000_000.0, raising=False
    )
    with pytest.raises(Conflict, match="clock"):
        await restore(service, directory)
    assert await service.mediator.control.databases() == []


async def test_a_schema_that_is_set_meanwhile_ends_the_backup(
    installation: Start, tmp_path: Path
) -> None:
    service = await installation()
    database = await create_database(service, 1)
    control = service.mediator.control
    changes: list[asyncio.Task[Any]] = []

    def on_progress(_: ArchiveProgress) -> None:
        fields = {**SPREAD["fields"], "more": field_on("postgres")}
        document = {"classes": {"things": {"fields": fields}}}
        changes.append(asyncio.create_task(control.set_schema(database, document)))

    read_rows = CatalogueRows.read

    async def read(self: CatalogueRows) -> list[dict[str, Any]]:
        await asyncio.gather(*changes)
        return await read_rows(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogueRows, "read", read)
        with pytest.raises(Conflict, match="A schema was set"):
            await Backup(service.mediator.installation, on_progress).write(tmp_path / "b")
    assert not (tmp_path / "b" / MANIFEST).exists()


async def test_declared_capabilities_are_restored_with_the_schema(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    await source.mediator.control.amend("mongo", declared=["elasticity"])
    bound = {"type": "string", "annotations": [{"require": "elasticity"}]}
    database = await source.put_schema({"bound": {"fields": {"title": bound}}})
    await source.create(database, "bound", "x", title="t")
    await create_database(source, 2)
    await back_up(source, tmp_path / "b")
    assert (await restore(target, tmp_path / "b", dry_run=True)).put == 3
    assert await target.mediator.control.databases() == []
    await restore(target, tmp_path / "b")
    assert "mongo" in target.systems_of(database, "bound")
    assert await target.values(database, "bound", "x") == {"title": "t"}
    assert "elasticity" in (await target.mediator.control.system("mongo"))["declared"]


async def test_nothing_is_restored_if_something_cannot_be_placed(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    await create_database(source, 2)
    await source.mediator.control.amend("mongo", declared=["elasticity"])
    bound = {"type": "string", "annotations": [{"require": "elasticity"}]}
    await source.put_schema({"bound": {"fields": {"title": bound}}})
    await back_up(source, tmp_path / "b")
    manifest = replace(read_manifest(tmp_path / "b"), systems={})  # no declarations
    (tmp_path / "b" / MANIFEST).unlink()
    write_manifest(tmp_path / "b", manifest)
    for dry_run in (True, False):
        with pytest.raises(Unplaceable):
            await restore(target, tmp_path / "b", dry_run=dry_run)
        assert await target.mediator.control.databases() == []
