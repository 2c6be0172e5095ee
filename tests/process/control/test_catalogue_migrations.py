"""Catalogue revisions on PostgreSQL: upgrade, downgrade, concurrent and killed migrations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.schema import CreateSchema
from typer.testing import CliRunner

from app.cli import command_line
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import installation_id, installation_id_if_any
from mediator.catalogue.revisions import CatalogueMismatch, Compatibility, Revisions
from mediator.catalogue.tables import SCHEMA, databases, epoch, metadata
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import scratch_database

COLUMN = """
from alembic import op
from sqlalchemy import Column, Text

revision, down_revision, additive = "{next}", "{newest}", {additive}

def upgrade():
    op.add_column("databases", Column("owner", Text), schema="portolan_catalogue")
    {pause}

def downgrade():
    op.drop_column("databases", "owner", schema="portolan_catalogue")
"""
NEWEST = Revisions().newest
NEXT = f"{int(NEWEST) + 1:04}"
DOCUMENT = {"name": "news", "version": 3, "document": {"classes": {}}, "layout": {}}


def later_revisions(directory: Path, *, additive: bool, pause: str = "") -> Revisions:
    """Return the revisions of a later Portolan, which has one more."""
    source = COLUMN.format(additive=additive, pause=pause, next=NEXT, newest=NEWEST)
    (directory / f"r{NEXT}_owner.py").write_text(source)
    return Revisions(directory)


@pytest.fixture
async def url(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    async with scratch_database(postgresql_config) as created:
        yield created


async def open_and_close(url: str, **options: object) -> None:
    catalogue = Catalogue(url, **options)  # type: ignore[arg-type]  # options of two types
    try:
        await catalogue.open()
    finally:
        await catalogue.close()


async def columns(url: str) -> list[tuple[str | None, ...]]:
    """Return every column of the catalogue, as PostgreSQL describes it."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT table_name, column_name, data_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2",
            SCHEMA,
        )
        return [tuple(row.values()) for row in rows]
    finally:
        await connection.close()


def differences(connection: Connection) -> list[object]:
    """Return how a catalogue differs from the code's tables, as alembic reports it."""

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        return kind != "schema" or name == SCHEMA

    options = {"version_table_schema": SCHEMA, "include_schemas": True, "include_name": is_ours}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


@pytest.fixture
async def catalogue(url: str) -> AsyncIterator[Catalogue]:
    catalogue = Catalogue(url)
    yield catalogue
    await catalogue.close()


async def stored(catalogue: Catalogue) -> tuple[int, list[str]]:
    """Return the epoch, and the names of the databases."""
    async with catalogue.begin() as connection:
        number = (await connection.execute(select(epoch.c.epoch))).scalar_one()
        names = (await connection.execute(select(databases.c.name))).scalars()
        return number, list(names)


async def fill(catalogue: Catalogue) -> None:
    async with catalogue.begin() as connection:
        await connection.execute(update(epoch).values(epoch=7))
        await connection.execute(insert(databases).values(id="news_1", **DOCUMENT))


async def test_the_migrations_make_the_tables_of_the_code(catalogue: Catalogue) -> None:
    await catalogue.open()
    assert await catalogue.run_sync(differences) == []
    assert await catalogue.run_sync(catalogue.revisions.current) == catalogue.revisions.newest
    assert await stored(catalogue) == (0, [])


async def test_tables_that_no_revision_created_are_refused(catalogue: Catalogue) -> None:
    async with catalogue.begin() as connection:
        await connection.execute(CreateSchema(SCHEMA))
        await connection.run_sync(metadata.tables[f"{SCHEMA}.runs"].create)
    with pytest.raises(CatalogueMismatch, match="no revision of the catalogue has created"):
        await catalogue.open()
    assert await catalogue.run_sync(catalogue.revisions.current) is None


async def test_upgrade_and_downgrade_keep_common_data(
    url: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    await catalogue.open()
    await fill(catalogue)
    before, installation = await columns(url), await installation_id(catalogue)
    newer = later_revisions(tmp_path, additive=False)
    await catalogue.migrate(newer.upgrade)
    assert ("databases", "owner", "text", "YES", None) in await columns(url)
    await catalogue.migrate(partial(newer.downgrade, to=NEWEST))
    assert await columns(url) == before
    assert await stored(catalogue) == (7, ["news"])
    assert await installation_id_if_any(catalogue) == installation
    compatibility = await catalogue.run_sync(catalogue.revisions.compatibility)
    assert compatibility is Compatibility.CURRENT
    await open_and_close(url)


async def test_each_catalogue_has_its_own_installation(
    url: str, catalogue: Catalogue, postgresql_config: SystemConfig
) -> None:
    assert await installation_id_if_any(catalogue) is None
    await catalogue.open()
    own = await installation_id(catalogue)
    await open_and_close(url)
    assert await installation_id_if_any(catalogue) == await installation_id(catalogue) == own
    async with scratch_database(postgresql_config) as elsewhere:
        other = Catalogue(elsewhere)
        await other.open()
        assert await installation_id(other) != own
        await other.close()


async def test_older_code_runs_on_additive_revisions(url: str, tmp_path: Path) -> None:
    newer = later_revisions(tmp_path, additive=True)
    await open_and_close(url, revisions=newer)
    for migrate in (True, False):
        await open_and_close(url, migrate=migrate)


async def test_older_code_refuses_incompatible_revisions(url: str, tmp_path: Path) -> None:
    newer = later_revisions(tmp_path, additive=False)
    await open_and_close(url, revisions=newer)
    for migrate in (True, False):
        with pytest.raises(CatalogueMismatch, match=rf"has revision {NEXT}.*none beyond {NEWEST}"):
            await open_and_close(url, migrate=migrate)
    await open_and_close(url, revisions=newer)


async def test_nothing_is_migrated_where_migration_is_off(
    url: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    with pytest.raises(CatalogueMismatch, match="portolan catalogue upgrade"):
        await open_and_close(url, migrate=False)
    assert await columns(url) == []
    await catalogue.open()
    with pytest.raises(CatalogueMismatch, match=rf"has revision {NEWEST}.* needs {NEXT}"):
        await open_and_close(url, migrate=False, revisions=later_revisions(tmp_path, additive=True))


async def test_replicas_that_start_together_migrate_once(url: str, tmp_path: Path) -> None:
    await asyncio.gather(*(open_and_close(url) for _ in range(5)))
    newer = later_revisions(tmp_path, additive=True)
    await asyncio.gather(
        *(open_and_close(url, revisions=newer) for _ in range(5)), open_and_close(url)
    )
    connection = await asyncpg.connect(url)
    applied = await connection.fetch(f"SELECT revision FROM {SCHEMA}.revisions ORDER BY 1")
    await connection.close()
    assert [row["revision"] for row in applied] == [f"{n:04}" for n in range(1, int(NEXT) + 1)]


KILLED = """
import asyncio, sys
from pathlib import Path
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.revisions import Revisions
catalogue = Catalogue(sys.argv[1], revisions=Revisions(Path(sys.argv[2])))
asyncio.run(catalogue.open())
"""


async def test_a_killed_migration_changes_nothing(
    url: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    await catalogue.open()
    await fill(catalogue)
    before = await columns(url)
    reached = tmp_path / "reached"
    pause = f"import pathlib, time; pathlib.Path({str(reached)!r}).touch(); time.sleep(600)"
    later_revisions(tmp_path, additive=False, pause=pause)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url, str(tmp_path))

    async def half_way() -> bool:
        return await asyncio.to_thread(reached.exists)

    await eventually(half_way)
    process.kill()
    await process.wait()
    await open_and_close(url)
    assert (await columns(url), await stored(catalogue)) == (before, (7, ["news"]))
    await open_and_close(url, revisions=later_revisions(tmp_path, additive=False))


async def run_command(url: str, *arguments: str) -> str:
    invoke = partial(CliRunner().invoke, command_line(), ["catalogue", *arguments])
    result = await asyncio.to_thread(invoke, env={"PORTOLAN_CATALOGUE_URL": url})
    assert result.exit_code == 0, result.output
    return result.output


async def test_a_dry_run_prints_the_statements(url: str, catalogue: Catalogue) -> None:
    statements = await run_command(url, "upgrade", "--sql")
    assert await columns(url) == []
    connection = await asyncpg.connect(url)
    await connection.execute(statements)
    await connection.close()
    assert await catalogue.run_sync(differences) == []
    assert await run_command(url, "current") == f"{NEWEST}  current\n"
    assert await run_command(url, "downgrade", NEWEST) == f"{NEWEST}  current\n"
    assert await run_command(url, "upgrade") == f"{NEWEST}  current\n"
    history = (await run_command(url, "history")).splitlines()
    assert [line.split()[0] for line in history] == [f"{n:04}" for n in range(1, int(NEXT))]


async def test_there_is_no_downgrade_before_the_first_revision(
    url: str, catalogue: Catalogue
) -> None:
    await catalogue.open()
    for revision in ("base", "0009", "-1"):
        with pytest.raises(CatalogueMismatch, match="no way back"):
            await catalogue.migrate(partial(catalogue.revisions.downgrade, to=revision))
        with pytest.raises(CatalogueMismatch, match="no way back"):
            catalogue.revisions.sql(NEWEST, revision)
