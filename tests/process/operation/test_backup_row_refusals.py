"""Invalid rows of the catalogue in a backup: refused before anything is restored."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from mediator.archive import files
from mediator.archive.files import (
    CATALOGUE,
    ArchiveInvalid,
    LinesFile,
    read_manifest,
    write_manifest,
)
from mediator.catalogue.admission import CatalogueAdmission
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schema_revisions import Author
from mediator.stores.port import SystemConfig
from tests.process.operation.backups import Start, back_up, lines_in, restore
from tests.process.service import Service, field_on, scratch_catalogue, scratch_systems, service

NOTES: Final = {"notes": {"fields": {"title": field_on("postgres")}}}


@dataclass(frozen=True, slots=True)
class Saved:
    """A backup with a row of each table, and an empty installation."""

    target: Service
    directory: Path


@pytest.fixture(scope="module")
async def original(
    postgresql_config: SystemConfig, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Saved]:
    directory = tmp_path_factory.mktemp("original") / "b"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        services = []
        for _ in range(2):
            url = await enter(scratch_catalogue(postgresql_config))
            configs = await enter(scratch_systems(postgresql_config))
            services.append(await enter(service(configs, url)))
        source, target = services
        await fill(source)
        await back_up(source, directory)
        yield Saved(target, directory)


@pytest.fixture
def saved(original: Saved, tmp_path: Path) -> Saved:
    """The same, with a writable copy of the backup."""
    return Saved(original.target, shutil.copytree(original.directory, tmp_path / "b"))


async def fill(source: Service) -> None:
    database = await source.put_schema(NOTES)
    await source.mediator.registrations.secret("cursors", "first")
    tenancy = source.mediator.tenancy
    await tenancy.put_tenant("club", {"rate": 5.5, "objects": 0})
    await tenancy.own("club", database)
    await tenancy.create_key("club", "ada", ["read"], label="laptop", expires=2e9)
    id_ = source.mediator.data.model.databases[database].id
    runs = source.mediator.runs
    job = {"kind": "k"}
    await runs.submit("r", (database, id_), job, dry_run=False, key=None, fingerprint=None)
    await runs.cancel(id_, "r")
    catalogue = Catalogue(source.catalogue_url)
    try:
        rules = CatalogueAdmission(catalogue)
        await rules.put("-- none yet", Author("club", "ada"), None, lets_go=True)
    finally:
        await catalogue.close()


def rewrite(directory: Path, lines: list[Any], line_count: int | None = None) -> None:
    """Replace the rows in a backup, with the right checksum, and a stated number of lines."""
    (directory / CATALOGUE).unlink()
    with LinesFile(directory / CATALOGUE) as file:
        file.write(lines)
        entry = file.finish()
    if line_count is not None:
        entry = replace(entry, lines=line_count)
    write_manifest(directory, replace(read_manifest(directory), catalogue=entry))


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


Change = Callable[[dict[str, Any]], object]


def having(**columns: Any) -> Change:
    return lambda line: line["row"].update(columns)


def lacking(column: str) -> Change:
    return lambda line: line["row"].pop(column)


HOSTILE: Final[dict[str, tuple[str, Change]]] = {
    "no table": ("secrets", lambda line: line.pop("table")),
    "a table name that is a list": ("secrets", lambda line: line.update(table=["secrets"])),
    "no row": ("secrets", lambda line: line.pop("row")),
    "a row that is a list": ("secrets", lambda line: line.update(row=["cursors", "first"])),
    "a secret without a name": ("secrets", lacking("name")),
    "a secret that is null": ("secrets", having(value=None)),
    "a secret that is a number": ("secrets", having(value=1)),
    "text that cannot be stored": ("secrets", having(value="a\0b")),
    "a key longer than an index takes": ("secrets", having(name="é" * 1_001)),
    "a run that has not ended": ("runs", having(ended=None)),
    "a run without an end": ("runs", lacking("ended")),
    "a state that has not ended": ("runs", having(state="running")),
    "a state that is a list": ("runs", having(state=["done"])),
    "a job that is a list": ("runs", having(document=[])),
    "a job that is too deep": ("runs", having(document=deep(251))),
    "text in a job that cannot be stored": ("runs", having(document={"a": ["\0"]})),
    "a name in a job that cannot be stored": ("runs", having(document={"\0": 1})),
    "progress that is null": ("runs", having(progress=None)),
    "a count that is a fraction": ("runs", having(attempt=1.5)),
    "a count that is true": ("runs", having(attempt=True)),
    "a count beyond its column": ("runs", having(attempt=2**31)),
    "a negative count": ("runs", having(failed_attempts=-1)),
    "a version that is too large": ("runs", having(version=2**53)),
    "a boolean that is a number": ("runs", having(dry_run=1)),
    "a time that is a number": ("runs", having(created=0)),
    "text that is not a time": ("runs", having(created="yesterday")),
    "a time without zone": ("runs", having(ended="2026-01-01T00:00:00")),
    "a time before the year 1": ("runs", having(ended="0001-01-01T00:00:00+10:00")),
    "limits that are a list": ("tenants", having(limits=[])),
    "a limit that is text": ("tenants", having(limits={"rate": "5"})),
    "a negative limit": ("tenants", having(limits={"rate": -1})),
    "an owner that is null": ("tenant_databases", having(tenant=None)),
    "grants that are an object": ("api_keys", having(grants={})),
    "a grant that is a number": ("api_keys", having(grants=[1])),
    "an unknown grant": ("api_keys", having(grants=["everything"])),
    "a key without a digest": ("api_keys", lacking("digest")),
    "rules that are a list": ("admission_rules", having(text=[])),
    "half an author": ("admission_rules", having(author={"tenant": "club"})),
    "an author that is text": ("admission_rules", having(author="ada")),
}


@pytest.mark.parametrize("how", HOSTILE)
async def test_an_invalid_row_is_refused_before_anything_is_restored(
    saved: Saved, how: str
) -> None:
    table, change = HOSTILE[how]
    lines = lines_in(saved.directory / CATALOGUE)
    [number] = [n for n, line in enumerate(lines, 1) if line["table"] == table]
    change(lines[number - 1])
    rewrite(saved.directory, lines)
    await assert_refused(saved, f"Line {number} of {CATALOGUE} is no row of the catalogue: ")


async def assert_refused(saved: Saved, reason: str) -> None:
    for dry_run in (True, False):
        with pytest.raises(ArchiveInvalid, match=reason):
            await restore(saved.target, saved.directory, dry_run=dry_run)
    assert await saved.target.mediator.control.databases() == []


@pytest.mark.parametrize("line", [1, "secrets", None, []])
async def test_a_line_that_is_not_an_object_is_refused(saved: Saved, line: Any) -> None:
    lines = lines_in(saved.directory / CATALOGUE)
    rewrite(saved.directory, [*lines, line])
    await assert_refused(saved, f"Line {len(lines) + 1} of {CATALOGUE} is no row")


@pytest.mark.parametrize(("extra", "reason"), [(-1, "more"), (1, "fewer")])
async def test_another_number_of_lines_than_the_manifest_says_is_refused(
    saved: Saved, extra: int, reason: str
) -> None:
    lines = lines_in(saved.directory / CATALOGUE)
    rewrite(saved.directory, lines, len(lines) + extra)
    await assert_refused(saved, f"{CATALOGUE} has {reason} lines than")


async def test_a_line_that_is_too_long_is_refused(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    await assert_refused(saved, f"Line 1 of {CATALOGUE} is too long")


async def test_tables_and_columns_of_a_later_version_are_left_out(
    saved: Saved, installation: Start
) -> None:
    lines = lines_in(saved.directory / CATALOGUE)
    rows = [{**line, "row": {**line["row"], "later": ["\0"]}, "later": 1} for line in lines]
    rewrite(saved.directory, [*rows, {"table": "later", "row": {"a": 1}}])
    target = await installation()
    assert (await restore(target, saved.directory)).rows == len(lines)
    [key] = await target.mediator.tenancy.keys("club")
    assert (key["subject"], key["grants"], key["label"]) == ("ada", ["read"], "laptop")
    assert (await target.mediator.tenancy.tenant("club"))["limits"] == {"rate": 5.5, "objects": 0}
