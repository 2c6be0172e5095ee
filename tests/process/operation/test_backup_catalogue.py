"""Catalogue rows in backups, caches after a restoration, and the commands when killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import orjson
import pytest

from app.coherence.caches import Caches, make_caches
from app.settings.main import CacheSettings
from mediator.archive.files import MANIFEST, ArchiveInvalid, Manifest
from mediator.base.errors import MediatorError, NotFound
from mediator.catalogue import tables
from mediator.catalogue.admission import CatalogueAdmission
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.row_decoding import BACKUP_TABLES, decode_row
from mediator.catalogue.rows import AddedRows, CatalogueRows
from mediator.catalogue.runs import CatalogueRuns
from mediator.catalogue.tables import metadata
from mediator.changes.feed import PositionGone
from mediator.changes.position import FeedPosition
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig, Write, WriteKind
from sketch.protocol.port import Partition
from tests.faults.conditions import eventually
from tests.process.operation.backups import (
    SPREAD,
    Start,
    back_up,
    create_database,
    lines_of,
    put,
    restore,
    run_command,
    start_command,
    stored_objects,
    values_of,
)
from tests.process.service import (
    Service,
    unique,
)

EXCLUDED = (
    tables.databases,  # restored from their schemas
    tables.schema_revisions,  # in separate files
    tables.systems,  # their addresses are in the settings
    tables.dropped_databases,  # the target has none of their data
    tables.epoch,
    tables.installation,  # the target is another installation
    tables.schema_changes,
    tables.access,  # the target's counts go on
    tables.transactions,  # resolved, or not in the backup
    tables.revisions,
    tables.violations,
    tables.proposals,  # the target recomputes scores
    tables.replicas,
    tables.workers,
    tables.admission_evaluator,
    tables.admission_log,  # events of the source
)
"""Tables that backups leave out."""


async def test_every_table_of_the_catalogue_is_saved_or_excluded() -> None:
    assert {*BACKUP_TABLES, *EXCLUDED} == {*metadata.tables.values()}
    assert not {*BACKUP_TABLES} & {*EXCLUDED}


async def test_rows_of_the_catalogue_come_back_once(
    installation: Start,
) -> None:
    source, target = await installation(), await installation()
    secret = await source.mediator.registrations.secret("cursors", "first")
    ids = [uuid4().hex for _ in range(2)]
    async with AsyncExitStack() as stack:
        source_catalogue, target_catalogue = (
            Catalogue(source.catalogue_url),
            Catalogue(target.catalogue_url),
        )
        for catalogue in (source_catalogue, target_catalogue):
            stack.push_async_callback(catalogue.close)
        runs = CatalogueRuns(source_catalogue)
        club = await source.put_schema({"things": SPREAD})
        club_id = source.mediator.data.model.databases[club].id
        for id_ in ids:
            await runs.submit(
                id_, (club, club_id), {"kind": "k"}, dry_run=False, key=None, fingerprint=None
            )
        await runs.cancel(club_id, ids[0])
        rules = await CatalogueAdmission(source_catalogue).put(
            "-- none yet", None, None, lets_go=True
        )
        entries = await CatalogueRows(source_catalogue).read()
        assert [row["row"]["id"] for row in entries if row["table"] == "runs"] == [ids[0]]
        rows = CatalogueRows(target_catalogue)
        decoded = [decode_row(entry) for entry in orjson.loads(orjson.dumps(entries))]
        known_rows, new_ids = [row for row in decoded if row is not None], {club: "club_2"}
        assert [await rows.add(known_rows, new_ids) for _ in range(2)] == [
            AddedRows(3, 0),
            AddedRows(0, 0),
        ]
        assert await CatalogueAdmission(target_catalogue).rules() == rules
    assert await target.mediator.registrations.secret("cursors", "other") == secret == "first"
    restored = await target.mediator.runs.find("club_2", ids[0])
    saved_run = await source.mediator.runs.find(club_id, ids[0])
    assert restored == replace(saved_run, database_id="club_2")


@pytest.fixture
async def caches(redis_config: SystemConfig) -> AsyncIterator[Caches]:
    instance = make_caches(CacheSettings(sketch="redis", cache_max_ttl_s=60.0), redis_config.url)
    assert instance is not None
    yield instance
    await instance.stop()
    await instance.close()


async def test_no_copy_from_before_a_restoration_is_fresh(
    installation: Start,
    caches: Caches,
    redis_config: SystemConfig,
    tmp_path: Path,
) -> None:
    service = await installation(guard=caches.guard, coordination_url=redis_config.url)
    caches.start(
        service.mediator.orphan_resolver,
        lambda: service.mediator.data.model,
        service.mediator.control.databases,
    )
    database = await service.put_schema({"things": SPREAD})
    partition = Partition(database, "things")
    await caches.sketch.create(partition)
    await put(service, database, "kept", title="first")
    await back_up(service, tmp_path / "b", database)
    await put(service, database, "kept", title="second")
    await put(service, database, "newer", title="written after the backup")
    keys = [str(CacheKey("things", id_, "main")) for id_ in ("kept", "newer")]
    await caches.leases.release(partition, keys)
    for key in keys:
        assert (await caches.sketch.report_read(partition, [key], 60.0)).ttl_us > 0
    filter_ = await caches.sketch.snapshot([partition])
    assert service.mediator.changes.subscriptions is not None
    database_id = service.mediator.data.model.databases[database].id
    position = await service.mediator.changes.subscriptions.now(database_id)
    # The systems lose these objects without notifying any process.
    route = service.mediator.data.model.databases[database].classes["things"]
    for fragment in route.fragments:
        store = service.mediator.systems.get(fragment.system).store
        kind, groups = WriteKind.DELETE, tuple(fragment.groups)
        await store.write(
            [Write(fragment, id_, kind, unique("op"), groups) for id_ in ("kept", "newer")]
        )
    assert not (await caches.sketch.snapshot([partition])).revalidate_all
    await restore(service, tmp_path / "b", force=True)
    current = await caches.sketch.snapshot([partition])
    assert current.generation != filter_.generation
    assert current.revalidate_all, "a copy of lost data is taken for fresh"
    assert (await caches.sketch.report_read(partition, [keys[0]], 60.0)).ttl_us == 0
    with pytest.raises(PositionGone):
        await service.mediator.changes.subscriptions.open(database_id, position)
    saved_position = (
        Manifest.from_json((tmp_path / "b" / MANIFEST).read_bytes()).databases[database].position
    )
    assert saved_position is not None
    with pytest.raises(PositionGone):
        await service.mediator.changes.subscriptions.open(
            database_id, FeedPosition.parse(saved_position, "p")
        )
    assert await service.values(database, "things", "kept") == {"title": "first"}
    with pytest.raises(NotFound):
        await service.get(database, "things", "newer")


async def test_a_killed_backup_cannot_be_restored(mediator: Service, tmp_path: Path) -> None:
    service = mediator
    database = await create_database(service, 600)
    directory = tmp_path / "b"
    process = await start_command(service, "backup", str(directory), "--database", database)

    async def is_started() -> bool:
        return await asyncio.to_thread((directory / database / "things.ndjson.gz").exists)

    await eventually(is_started)
    process.send(signal.SIGKILL)
    await process.ended()
    if not (directory / MANIFEST).exists():  # the backup can finish before the signal
        with pytest.raises(ArchiveInvalid, match="no backup"):
            await restore(service, directory, force=True)
    assert "600 objects" in await run_command(
        service, "backup", str(tmp_path / "again"), "--database", database
    )


async def test_a_killed_restoration_can_be_repeated(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    source, target = mediator, await installation()
    database = await create_database(source, 600)
    await back_up(source, tmp_path / "b", database)
    process = await start_command(target, "restore", str(tmp_path / "b"))

    async def has_objects() -> bool:
        try:
            return bool(await stored_objects(target, database, "things"))
        except MediatorError:
            return False

    await eventually(has_objects)
    process.send(signal.SIGKILL)
    await process.ended()
    output = await run_command(target, "restore", str(tmp_path / "b"), "--force")
    assert "objects put: 600" in output
    saved = lines_of(tmp_path / "b", database, "things")

    async def is_complete() -> bool:
        return values_of(await stored_objects(target, database, "things")) == values_of(saved)

    await eventually(is_complete)
