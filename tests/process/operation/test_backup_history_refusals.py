"""Invalid histories of schemas in a backup: refused before anything is restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from mediator.archive import files
from mediator.archive.files import (
    MANIFEST,
    ArchiveInvalid,
    HistoryPart,
    LinesFile,
    Manifest,
    history_file,
    read_manifest,
    write_manifest,
)
from mediator.catalogue.schema_revisions import MAX_REVISIONS
from mediator.schema.limits import DOCUMENT_DEPTH
from tests.process.data.pinned.shop import Shop, goods
from tests.process.operation.backups import Start, back_up, lines_in, restore
from tests.process.operation.histories import documents, restored_shop, versions
from tests.process.service import Service


@pytest.fixture
async def saved(installation: Start, tmp_path: Path) -> tuple[Service, Path, str]:
    """An emptied installation, and a backup of a schema of two versions."""
    service = await installation()
    shop = Shop.of(service)
    await shop.change(goods("price"))
    await shop.change(goods("cost"), "goods.price:cost")
    await back_up(service, tmp_path / "b")
    await service.mediator.control.delete_schema(shop.database)
    return service, tmp_path / "b", shop.database


def rewrite(directory: Path, database: str, lines: list[Any], newest: int = 2) -> None:
    """Replace the history in a backup, with the right checksums."""
    path = directory / history_file(database)
    path.unlink()
    with LinesFile(path) as file:
        file.write(lines)
        history = HistoryPart(newest, 0, file.finish())
    manifest = read_manifest(directory)
    entry = replace(manifest.databases[database], history=history)
    write_manifest(directory, replace(manifest, databases={database: entry}))


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def with_default(line: dict[str, Any], default: Any) -> None:
    line["document"]["classes"]["goods"]["fields"]["price"]["default"] = default


HOSTILE: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "a version that is text": lambda line: line.update(version="1"),
    "no version": lambda line: line.update(version=0),
    "the version of another line": lambda line: line.update(version=2),
    "a version after the newest": lambda line: line.update(version=3),
    "a version beyond the catalogue": lambda line: line.update(version=2**63),
    "a document that is a list": lambda line: line.update(document=[]),
    "a document without classes": lambda line: line.update(document={}),
    "a class of another name": lambda line: line.update(
        document={"classes": {"../x": {"fields": {}}}}
    ),
    "too many classes": lambda line: line.update(
        document={"classes": {f"c{n}": {"fields": {}} for n in range(201)}}
    ),
    "a field of another name": lambda line: line.update(
        document={"classes": {"goods": {"fields": {"a b": {}}}}}
    ),
    "a field that is a number": lambda line: line.update(
        document={"classes": {"goods": {"fields": {"a": 1}}}}
    ),
    "a document that is too deep": lambda line: with_default(line, deep(DOCUMENT_DEPTH + 1)),
    "text that cannot be stored": lambda line: with_default(line, "\0"),
    "a name that cannot be stored": lambda line: with_default(line, {"\0": 1}),
    "text that is not a time": lambda line: line.update(at="yesterday"),
    "a time without zone": lambda line: line.update(at="2026-01-01T00:00:00"),
    "a time before the year 1": lambda line: line.update(at="0001-01-01T00:00:00+10:00"),
    "half an author": lambda line: line.update(author={"tenant": "t"}),
    "half the counts": lambda line: line.update(changes={"added": 1}),
    "a negative count": lambda line: line["changes"].update(added=-1),
    "names that are a list": lambda line: line.update(names=[]),
    "a new name that is a number": lambda line: line["names"].update(renamed={"goods": {"a": 1}}),
    "an ended name of three levels": lambda line: line["names"].update(ended=["a.b.c"]),
    "a restored version that is text": lambda line: line["names"].update(restored="1"),
    "no names": lambda line: line.pop("names"),
}


@pytest.mark.parametrize("how", HOSTILE)
async def test_an_invalid_history_is_refused_before_anything_is_restored(
    saved: tuple[Service, Path, str], how: str
) -> None:
    service, directory, database = saved
    lines = lines_in(directory / history_file(database))
    HOSTILE[how](lines[0])
    rewrite(directory, database, lines)
    await assert_refused(service, directory)


async def assert_refused(service: Service, directory: Path) -> None:
    for dry_run in (True, False):
        with pytest.raises(ArchiveInvalid):
            await restore(service, directory, dry_run=dry_run)
    assert await service.mediator.control.databases() == []


@pytest.mark.parametrize("how", ["reversed", "scalar", "long", "damaged", "missing", "another"])
async def test_an_invalid_history_file_is_refused(
    saved: tuple[Service, Path, str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, directory, database = saved
    path = directory / history_file(database)
    lines = lines_in(path)
    match how:
        case "reversed":
            rewrite(directory, database, lines[::-1])
        case "scalar":
            rewrite(directory, database, [*lines, 1])
        case "long":
            monkeypatch.setattr(files, "MAX_LINE_BYTES", 100)
        case "damaged":
            path.write_bytes(path.read_bytes()[:-1])
        case "another":
            manifest = (directory / MANIFEST).read_bytes()
            rewrite(directory, database, lines[1:])
            (directory / MANIFEST).write_bytes(manifest)
        case _:
            path.unlink()
    await assert_refused(service, directory)


async def test_the_deepest_default_is_restored(saved: tuple[Service, Path, str]) -> None:
    service, directory, database = saved
    lines = lines_in(directory / history_file(database))
    with_default(lines[0], deep(DOCUMENT_DEPTH))
    rewrite(directory, database, lines)
    await restore(service, directory)
    assert (await documents(restored_shop(service, database)))[1] == lines[0]["document"]


@pytest.mark.parametrize(("version", "retired_before"), [(0, 0), (2, 3), (2, -1), (2**53, 0)])
async def test_a_manifest_with_impossible_versions_is_refused(
    saved: tuple[Service, Path, str], version: int, retired_before: int
) -> None:
    _, directory, database = saved
    manifest = read_manifest(directory)
    entry = manifest.databases[database]
    assert entry.history is not None
    history = replace(entry.history, version=version, retired_before=retired_before)
    impossible = replace(manifest, databases={database: replace(entry, history=history)})
    (directory / MANIFEST).write_bytes(impossible.to_json())
    with pytest.raises(ArchiveInvalid):
        Manifest.from_json(impossible.to_json())


async def test_no_more_versions_are_restored_than_are_kept(
    saved: tuple[Service, Path, str],
) -> None:
    service, directory, database = saved
    newest = MAX_REVISIONS + 2
    [line, _] = lines_in(directory / history_file(database))
    lines = [{**line, "version": number} for number in range(1, newest + 1)]
    rewrite(directory, database, lines, newest)
    await restore(service, directory)
    assert await versions(restored_shop(service, database)) == [*range(newest, 2, -1)]
