"""What a backup holds of the catalogue, what caches go by after a restoration, and its commands."""

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
    command,
    done,
    filled,
    held,
    lines_of,
    put,
    restore,
    values_of,
)
from tests.process.service import (
    Service,
    unique,
)

LEFT = (
    tables.databases,  # by their schemas
    tables.schema_revisions,  # in files of their own
    tables.systems,  # how to reach them is in the settings
    tables.dropped_databases,  # nothing of them is left where it is restored
    tables.epoch,
    tables.installation,  # what is restored is another one
    tables.schema_changes,
    tables.access,  # counts on where it is restored
    tables.transactions,  # resolved, or not in the backup
    tables.revisions,
    tables.violations,
    tables.proposals,  # scores are computed again there
    tables.replicas,
    tables.workers,
    tables.admission_evaluator,
    tables.admission_log,  # of what happened elsewhere
)
"""Tables whose rows are in no backup."""


async def test_every_table_of_the_catalogue_is_kept_or_left() -> None:
    assert {*BACKUP_TABLES, *LEFT} == {*metadata.tables.values()}
    assert not {*BACKUP_TABLES} & {*LEFT}


async def test_rows_of_the_catalogue_come_back_once(
    installation: Start,
) -> None:
    source, target = await installation(), await installation()
    secret = await source.mediator.registrations.secret("cursors", "first")
    ids = [uuid4().hex for _ in range(2)]
    async with AsyncExitStack() as opened:
        saved, filled = Catalogue(source.catalogue_url), Catalogue(target.catalogue_url)
        for catalogue in (saved, filled):
            opened.push_async_callback(catalogue.close)
        runs = CatalogueRuns(saved)
        club = await source.put_schema({"things": SPREAD})
        club_id = source.mediator.data.model.databases[club].id
        for id_ in ids:
            await runs.submit(
                id_, (club, club_id), {"kind": "k"}, dry_run=False, key=None, fingerprint=None
            )
        await runs.cancel(club_id, ids[0])
        rules = await CatalogueAdmission(saved).put("-- none yet", None, None, lets_go=True)
        entries = await CatalogueRows(saved).read()
        assert [row["row"]["id"] for row in entries if row["table"] == "runs"] == [ids[0]]
        rows = CatalogueRows(filled)
        decoded = [decode_row(each) for each in orjson.loads(orjson.dumps(entries))]
        found, here = [each for each in decoded if each is not None], {club: "club_2"}
        assert [await rows.add(found, here) for _ in range(2)] == [AddedRows(3, 0), AddedRows(0, 0)]
        assert await CatalogueAdmission(filled).rules() == rules
    assert await target.mediator.registrations.secret("cursors", "other") == secret == "first"
    restored = await target.mediator.runs.find("club_2", ids[0])
    saved_run = await source.mediator.runs.find(club_id, ids[0])
    assert restored == replace(saved_run, database_id="club_2")


@pytest.fixture
async def caches(redis_config: SystemConfig) -> AsyncIterator[Caches]:
    opened = make_caches(CacheSettings(sketch="redis", cache_longest_s=60.0), redis_config.url)
    assert opened is not None
    yield opened
    await opened.stop()
    await opened.close()


async def test_no_copy_from_before_a_restoration_is_fresh(
    installation: Start,
    caches: Caches,
    redis_config: SystemConfig,
    tmp_path: Path,
) -> None:
    own = await installation(guard=caches.guard, coordination_url=redis_config.url)
    caches.start(
        own.mediator.orphan_resolver,
        lambda: own.mediator.data.model,
        own.mediator.control.databases,
    )
    database = await own.put_schema({"things": SPREAD})
    partition = Partition(database, "things")
    await caches.sketch.create(partition)
    await put(own, database, "kept", title="first")
    await back_up(own, tmp_path / "b", database)
    await put(own, database, "kept", title="second")
    await put(own, database, "newer", title="written after the backup")
    keys = [str(CacheKey("things", id_, "main")) for id_ in ("kept", "newer")]
    await caches.leases.release(partition, keys)
    for key in keys:
        assert (await caches.sketch.report_read(partition, [key], 60.0)).ttl_us > 0
    filter_ = await caches.sketch.snapshot([partition])
    assert own.mediator.changes.subscriptions is not None
    database_id = own.mediator.data.model.databases[database].id
    position = await own.mediator.changes.subscriptions.now(database_id)
    # The systems come back without their data: no process is notified of that.
    route = own.mediator.data.model.databases[database].classes["things"]
    for fragment in route.fragments:
        store = own.mediator.systems.get(fragment.system).store
        kind, groups = WriteKind.DELETE, tuple(fragment.groups)
        await store.write(
            [Write(fragment, id_, kind, unique("op"), groups) for id_ in ("kept", "newer")]
        )
    assert not (await caches.sketch.snapshot([partition])).revalidate_all
    await restore(own, tmp_path / "b", force=True)
    now = await caches.sketch.snapshot([partition])
    assert now.generation != filter_.generation
    assert now.revalidate_all, "a copy of what is no more is taken for fresh"
    assert (await caches.sketch.report_read(partition, [keys[0]], 60.0)).ttl_us == 0
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database_id, position)
    old = Manifest.from_json((tmp_path / "b" / MANIFEST).read_bytes()).databases[database].position
    assert old is not None
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database_id, FeedPosition.parse(old, "p"))
    assert await own.values(database, "things", "kept") == {"title": "first"}
    with pytest.raises(NotFound):
        await own.get(database, "things", "newer")


async def test_a_killed_backup_cannot_be_restored(mediator: Service, tmp_path: Path) -> None:
    own = mediator
    database = await filled(own, 600)
    directory = tmp_path / "b"
    process = await command(own, "backup", str(directory), "--database", database)

    async def is_started() -> bool:
        return await asyncio.to_thread((directory / database / "things.ndjson.gz").exists)

    await eventually(is_started)
    process.send(signal.SIGKILL)
    await process.ended()
    if not (directory / MANIFEST).exists():  # it may have been faster than the signal
        with pytest.raises(ArchiveInvalid, match="no backup"):
            await restore(own, directory, force=True)
    assert "600 objects" in await done(
        own, "backup", str(tmp_path / "again"), "--database", database
    )


async def test_a_killed_restoration_can_be_repeated(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    source, target = mediator, await installation()
    database = await filled(source, 600)
    await back_up(source, tmp_path / "b", database)
    process = await command(target, "restore", str(tmp_path / "b"))

    async def some() -> bool:
        try:
            return bool(await held(target, database, "things"))
        except MediatorError:
            return False

    await eventually(some)
    process.send(signal.SIGKILL)
    await process.ended()
    output = await done(target, "restore", str(tmp_path / "b"), "--force")
    assert "objects put: 600" in output
    saved = lines_of(tmp_path / "b", database, "things")

    async def whole() -> bool:
        return values_of(await held(target, database, "things")) == values_of(saved)

    await eventually(whole)
