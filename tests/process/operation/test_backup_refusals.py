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
    filled,
    held,
    ignore,
    put,
    restore,
)
from tests.process.service import (
    Service,
    field_on,
)

LONG = 20_000
"""Bytes: longer than any line but that of one object."""


@pytest.fixture
async def saved(installation: Start, tmp_path: Path) -> tuple[Service, Path, str]:
    """An installation that is empty again, and a backup of what it had."""
    own = await installation()
    database = await filled(own, 3)
    await back_up(own, tmp_path / "b")
    await own.mediator.control.delete_schema(database)
    return own, tmp_path / "b", database


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "no manifest", "manifest flipped"])
async def test_a_damaged_backup_is_refused_before_anything_is_done(
    saved: tuple[Service, Path, str], how: str
) -> None:
    own, directory, database = saved
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
            await restore(own, directory, dry_run=dry_run)
    assert await own.mediator.control.databases() == []


async def test_a_manifest_with_a_path_outside_is_refused(saved: tuple[Service, Path, str]) -> None:
    _, directory, database = saved
    manifest = Manifest.from_json((directory / MANIFEST).read_bytes())
    entry = manifest.databases[database]
    elsewhere = replace(manifest, databases={"../../etc": entry}).to_json()
    with pytest.raises(ArchiveInvalid):
        Manifest.from_json(elsewhere)


async def test_an_object_too_long_for_a_line_ends_the_backup_by_its_name(
    saved: tuple[Service, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _, _ = saved
    database = await filled(own, 3)
    await put(own, database, "long", title="x" * LONG)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", LONG)
    with pytest.raises(Conflict, match=f"{database}/things/long cannot be saved"):
        await back_up(own, tmp_path / "c")
    assert not (tmp_path / "c" / MANIFEST).exists()


async def test_a_line_that_is_too_long_is_refused_before_anything_is_deleted(
    saved: tuple[Service, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _, _ = saved
    database = await filled(own, 3)
    await put(own, database, "long", title="x" * LONG)
    await back_up(own, tmp_path / "c")
    await put(own, database, "newer", title="not in the backup")
    before = await held(own, database, "things")
    monkeypatch.setattr(files, "MAX_LINE_BYTES", LONG)
    for dry_run in (True, False):
        with pytest.raises(ArchiveInvalid, match=r"Line 1 of things\.ndjson\.gz is too long"):
            await restore(own, tmp_path / "c", force=True, dry_run=dry_run)
    assert await held(own, database, "things") == before


async def test_backups_are_readable_by_their_owner_only(saved: tuple[Service, Path, str]) -> None:
    _, directory, _ = saved
    paths = [path for path in directory.rglob("*") if path.is_file()]
    assert len(paths) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory, *paths))
    whole = b"".join(p.read_bytes() for p in paths if p.suffix == ".json")
    assert b"://" not in whole


async def test_a_backup_into_a_directory_that_is_not_empty_is_refused(
    saved: tuple[Service, Path, str],
) -> None:
    own, directory, _ = saved
    before = (directory / MANIFEST).read_bytes()
    with pytest.raises(ArchiveInvalid, match="not empty"):
        await back_up(own, directory)
    assert (directory / MANIFEST).read_bytes() == before


async def test_a_missing_database_is_neither_saved_nor_restored(
    saved: tuple[Service, Path, str], tmp_path: Path
) -> None:
    own, directory, _ = saved
    with pytest.raises(NotFound):
        await back_up(own, tmp_path / "c", "nowhere")
    with pytest.raises(NotFound):
        await Restoration(own.mediator.installation, ignore).run(directory, ["nowhere"])


async def test_a_clock_that_is_behind_restores_nothing(
    saved: tuple[Service, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, directory, _ = saved
    monkeypatch.setattr(own.mediator.installation.clock, "now", lambda: 1_000_000.0, raising=False)
    with pytest.raises(Conflict, match="clock"):
        await restore(own, directory)
    assert await own.mediator.control.databases() == []


async def test_a_schema_that_is_set_meanwhile_ends_the_backup(
    installation: Start, tmp_path: Path
) -> None:
    own = await installation()
    database = await filled(own, 1)
    control = own.mediator.control
    setting: list[asyncio.Task[Any]] = []

    def on_progress(_: ArchiveProgress) -> None:
        fields = {**SPREAD["fields"], "more": field_on("postgres")}
        document = {"classes": {"things": {"fields": fields}}}
        setting.append(asyncio.create_task(control.set_schema(database, document)))

    rows = CatalogueRows.read

    async def read(self: CatalogueRows) -> list[dict[str, Any]]:
        await asyncio.gather(*setting)
        return await rows(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogueRows, "read", read)
        with pytest.raises(Conflict, match="A schema was set"):
            await Backup(own.mediator.installation, on_progress).write(tmp_path / "b")
    assert not (tmp_path / "b" / MANIFEST).exists()


async def test_declared_capabilities_are_restored_with_the_schema(
    installation: Start, tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    await source.mediator.control.amend("mongo", declared=["elasticity"])
    bound = {"type": "string", "annotations": [{"require": "elasticity"}]}
    database = await source.put_schema({"bound": {"fields": {"title": bound}}})
    await source.create(database, "bound", "x", title="t")
    await filled(source, 2)
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
    await filled(source, 2)
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
