"""Backups and their restoration, on the three real servers, in use and killed half way."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from app.coherence.caches import Caches, make_caches
from app.settings.main import CacheSettings
from mediator.archive.backup import Backup
from mediator.archive.files import read_manifest, write_manifest
from mediator.archive.filling import Restored
from mediator.archive.installation import ArchiveProgress
from mediator.archive.model import MANIFEST, ArchiveInvalid, Manifest
from mediator.archive.restore import Restoration
from mediator.base.errors import Conflict, MediatorError, NotFound, Unplaceable
from mediator.catalogue import tables
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.rows import KEPT, CatalogueRows
from mediator.catalogue.runs import CatalogueRuns
from mediator.catalogue.tables import metadata
from mediator.changes.feed import PositionGone
from mediator.changes.position import FeedPosition
from mediator.data_plane.walking import pages
from mediator.model.guard import CacheKey
from mediator.model.operations import Delete, Outcome, Put
from mediator.stores.port import SystemConfig, Write, WriteKind
from sketch.protocol.port import Partition
from tests.faults.conditions import eventually
from tests.process.service import (
    Service,
    field_on,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

SPREAD = {
    "fields": {
        "title": field_on("postgres"),
        "hits": field_on("redis", "integer", group="hits"),
        "tags": field_on("mongo", "set", items="string", group="tags"),
        "price": field_on("postgres", "decimal"),
        "at": field_on("postgres", "timestamp"),
    }
}


Start = Callable[..., Awaitable[Service]]


@pytest.fixture
async def installation(
    mediator: Service,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[Start]:
    """Starts installations, each with a catalogue and namespaces of its own."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Service:
            enter = stack.enter_async_context
            url = await enter(scratch_catalogue(postgresql_config))
            configs = await enter(scratch_systems(redis_config, postgresql_config, mongodb_config))
            started = await enter(service(configs, url, **options))
            await started.favour()
            return started

        yield start


LEFT = (
    tables.databases,  # by their schemas
    tables.systems,  # how to reach them is the settings' to say
    tables.dropped_databases,  # nothing of them is left where it is restored
    tables.epoch,
    tables.schema_changes,
    tables.access,  # counts on where it is restored
    tables.transactions,  # resolved, or not in the backup
    tables.revisions,
    tables.violations,
    tables.proposals,  # what scores say there is found out anew
    tables.replicas,
    tables.workers,
)
"""Tables whose rows are in no backup."""


def ignore(_: ArchiveProgress) -> None: ...


async def back_up(of: Service, directory: Path, *databases: str) -> Manifest:
    return await Backup(of.mediator.installation, ignore).write(directory, databases or None)


async def restore(to: Service, directory: Path, **options: bool) -> Restored:
    return await Restoration(to.mediator.installation, ignore).run(directory, None, **options)


def lines_of(directory: Path, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    text = gzip.decompress((directory / database / f"{class_name}.ndjson.gz").read_bytes())
    return {line["id"]: line for line in map(orjson.loads, text.splitlines())}


async def held(of: Service, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    """Return all objects as JSON, by id."""
    route = await of.mediator.data.route(database, class_name)
    return {
        o.id: {"versions": dict(o.versions), "values": route.codec.encode(o.values or {})}
        async for page in pages(of.mediator.data, database, class_name)
        for o in page
    }


async def put(of: Service, database: str, id_: str, **values: Any) -> dict[str, int | None]:
    operation = Put(database, "things", id_, unique("op"), values=values)
    return dict((await of.mediator.data.write(operation)).versions)


async def filled(of: Service, count: int = 30) -> str:
    database = await of.put_schema({"things": SPREAD})
    ids = [f"t{number:04}" for number in range(count)]
    values: list[dict[str, Any]] = [
        {"title": id_, "hits": len(id_), "tags": ["a", "é"]} for id_ in ids
    ]
    told = zip(ids, values, strict=True)
    puts = [Put(database, "things", id_, unique("op"), values=each) for id_, each in told]
    assert all(isinstance(o, Outcome) for o in await of.mediator.data.batch(puts))
    return database


States = defaultdict[tuple[str, str], dict[int, Any]]


async def write_on(
    of: Service, database: str, own: str, states: States, end: asyncio.Event
) -> None:
    """Write objects of one's own, some of which come and go, and note each state there was."""
    turn = 0
    while not end.is_set():
        turn += 1
        id_, values = f"t{own}{turn % 40:03}", {"title": own, "hits": turn, "tags": [own]}
        if turn % 7 == 0:
            gone = Delete(database, "things", id_, unique("op"))
            with suppress(NotFound):
                await of.mediator.data.write(gone)
            continue
        for group, version in (await put(of, database, id_, **values)).items():
            states[id_, group][version or 0] = values


async def test_what_was_saved_in_use_is_restored_elsewhere(
    mediator: Service, installation: Start, tmp_path: Path
) -> None:
    target = await installation()
    database = await filled(mediator, 520)  # more than a page
    states: States = defaultdict(dict)
    for id_, seen in (await held(mediator, database, "things")).items():
        for group, version in seen["versions"].items():
            states[id_, group][version] = seen["values"]
    end = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for own in "01":
            tasks.create_task(write_on(mediator, database, own, states, end))
        manifest = await back_up(mediator, tmp_path / "b", database)
        end.set()
    saved = lines_of(tmp_path / "b", database, "things")
    assert manifest.databases[database].classes["things"].lines == len(saved) >= 500
    groups = mediator.mediator.data.model.databases[database].classes["things"].groups
    for id_, line in saved.items():
        assert line["versions"].keys() == groups.keys(), "an object lacks a part"
        for group, version in line["versions"].items():
            then = states[id_, group][version]
            told = {name: line["values"].get(name) for name in groups[group]}
            assert told == {name: then.get(name) for name in groups[group]}
    report = await restore(target, tmp_path / "b")
    assert (report.created, report.put, report.deleted) == ([database], len(saved), 0)
    found = await held(target, database, "things")
    assert values_of(found) == values_of(saved)
    for id_, line in saved.items():
        assert all(found[id_]["versions"][g] > v for g, v in line["versions"].items())


def values_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {id_: told["values"] for id_, told in objects.items()}


async def test_a_database_that_is_there_becomes_what_was_saved(
    installation: Start, tmp_path: Path
) -> None:
    own = await installation()
    database = await filled(own)
    before = await held(own, database, "things")
    await back_up(own, tmp_path / "b", database)
    later = await put(own, database, "t0003", title="later")
    for extra in ("a", "t0003x", "zz"):
        await put(own, database, extra, title="extra")
    await own.mediator.data.write(Delete(database, "things", "t0007", unique("op")))
    with pytest.raises(Conflict, match="--force"):
        await restore(own, tmp_path / "b")
    changed = await held(own, database, "things")
    dry = await restore(own, tmp_path / "b", dry_run=True)
    assert (dry.overwritten, dry.put) == ([database], 30)
    assert await held(own, database, "things") == changed
    report = await restore(own, tmp_path / "b", force=True)
    assert (report.put, report.deleted) == (30, 3)
    after = await held(own, database, "things")
    assert values_of(after) == values_of(before)
    assert all(v > (later[g] or 0) for g, v in after["t0003"]["versions"].items())


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_tag_from_before_matches_nothing_afterwards(
    installation: Start, tmp_path: Path, emptied: bool
) -> None:
    """Clients keep tags longer than anything is remembered of objects that were lost."""
    own = await installation()
    database = await filled(own, 3)
    async with client_of(own, database) as http:
        await back_up(own, tmp_path / "b", database)
        tags = {id_: await tags_of(http, id_) for id_ in ("t0000", "t0001", "t0002")}
        await http.put("t0001", json={"title": "changed after the backup"})
        changed = await tags_of(http, "t0001")
        await http.put("lost", json={"title": "made after the backup", "hits": 1})
        tags["lost"] = await tags_of(http, "lost")
        assert (await http.delete("t0002")).status_code == 204
        if emptied:
            await own.mediator.control.delete_schema(database)
        await restore(own, tmp_path / "b", force=not emptied)
        assert (await http.get("lost")).status_code == 404
        await http.put("lost", json={"title": "something else", "hits": 1})
        for path, tag in [pair for told in (*tags.values(), changed) for pair in told.items()]:
            seen = await http.get(path, headers={"if-none-match": tag})
            assert seen.status_code == 200, f"{path}: {tag}"
            conditional = {"if-match": tag, **MERGE}
            written = await http.patch(path, json={"hits": 9}, headers=conditional)
            assert written.status_code == 412, f"{path}: {tag}"


MERGE = {"content-type": "application/merge-patch+json"}


def client_of(of: Service, database: str) -> httpx.AsyncClient:
    api = DataApi(of.mediator.data, DataOptions(cursor_key=b"k" * 32), lambda _: None)
    base = f"http://portolan/v1/{database}/things/"
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base)


async def tags_of(http: httpx.AsyncClient, id_: str) -> dict[str, str]:
    """Return the tags of an object, and of one group of it."""
    paths = (id_, f"{id_}?fields=hits")
    return {path: (await http.get(path)).headers["etag"] for path in paths}


async def test_classes_that_ask_for_if_match_and_values_of_all_kinds(
    installation: Start, tmp_path: Path
) -> None:
    own = await installation()
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
    database = await own.put_schema(
        {"odd": document, "none": {"fields": {"n": {"type": "string"}}}}
    )
    route = await own.mediator.data.route(database, "odd")
    body = {"b": "AP8=", "d": {"a": [1, 1.5, None]}, "f": 1.0, "m": {"é": 2**62}, "n": None}
    values = route.codec.decode_object({**body, "x": "1.10"})
    await own.mediator.data.write(Put(database, "odd", "é\u00ff", unique("op"), values=values))
    await back_up(own, tmp_path / "b", database)
    before = await held(own, database, "odd")
    await own.create(database, "odd", "extra", n="x")
    await restore(own, tmp_path / "b", force=True)
    after = await held(own, database, "odd")
    assert values_of(after) == values_of(before)


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


async def test_a_manifest_may_not_lead_elsewhere(saved: tuple[Service, Path, str]) -> None:
    _, directory, database = saved
    manifest = Manifest.from_json((directory / MANIFEST).read_bytes())
    part = manifest.databases[database]
    elsewhere = replace(manifest, databases={"../../etc": part}).to_json()
    with pytest.raises(ArchiveInvalid):
        Manifest.from_json(elsewhere)


async def test_secrets_are_nobody_elses_to_read(saved: tuple[Service, Path, str]) -> None:
    _, directory, _ = saved
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory, *files))
    whole = b"".join(p.read_bytes() for p in files if p.suffix == ".json")
    assert b"://" not in whole


async def test_a_directory_with_something_in_it_is_no_place(
    saved: tuple[Service, Path, str],
) -> None:
    own, directory, _ = saved
    before = (directory / MANIFEST).read_bytes()
    with pytest.raises(ArchiveInvalid, match="not empty"):
        await back_up(own, directory)
    assert (directory / MANIFEST).read_bytes() == before


async def test_what_is_not_there_is_neither_saved_nor_restored(
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

    def tell(_: ArchiveProgress) -> None:
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
            await Backup(own.mediator.installation, tell).write(tmp_path / "b")
    assert not (tmp_path / "b" / MANIFEST).exists()


async def test_what_operators_declared_is_restored_with_what_asks_for_it(
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
    manifest = replace(read_manifest(tmp_path / "b"), systems={})  # nobody has declared anything
    (tmp_path / "b" / MANIFEST).unlink()
    write_manifest(tmp_path / "b", manifest)
    for dry_run in (True, False):
        with pytest.raises(Unplaceable):
            await restore(target, tmp_path / "b", dry_run=dry_run)
        assert await target.mediator.control.databases() == []


async def test_every_table_of_the_catalogue_is_kept_or_left() -> None:
    assert {*KEPT, *LEFT} == {*metadata.tables.values()}
    assert not {*KEPT} & {*LEFT}


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
        told = await CatalogueRows(saved).read()
        assert [row["row"]["id"] for row in told if row["table"] == "runs"] == [ids[0]]
        rows = CatalogueRows(filled)
        told = orjson.loads(orjson.dumps([*told, {"table": "later", "row": {}}]))
        here = {club: "club_2"}
        assert [await rows.add(told, here), await rows.add(told, here)] == [2, 0]
    assert await target.mediator.registrations.secret("cursors", "other") == secret == "first"
    restored = await target.mediator.runs.find("club_2", ids[0])
    saved_run = await source.mediator.runs.find(club_id, ids[0])
    assert restored == replace(saved_run, database_id="club_2")


@pytest.fixture
async def caches(redis_config: SystemConfig) -> AsyncIterator[Caches]:
    made = make_caches(CacheSettings(sketch="redis", cache_longest_s=60.0), redis_config.url)
    assert made is not None
    yield made
    await made.stop()
    await made.close()


async def test_no_copy_from_before_is_taken_for_fresh(
    installation: Start,
    caches: Caches,
    redis_config: SystemConfig,
    tmp_path: Path,
) -> None:
    own = await installation(guard=caches.guard, coordination_url=redis_config.url)
    caches.start(own.mediator.orphan_resolver, lambda: own.mediator.data.model)
    database = await own.put_schema({"things": SPREAD})
    part = Partition(database, "things")
    await caches.sketch.create(part)
    await put(own, database, "kept", title="first")
    await back_up(own, tmp_path / "b", database)
    await put(own, database, "kept", title="second")
    await put(own, database, "newer", title="written after the backup")
    keys = [str(CacheKey("things", id_, "main")) for id_ in ("kept", "newer")]
    await caches._leases.release(part, keys)
    for key in keys:
        assert (await caches.sketch.report_read(part, [key], 60.0)).ttl_us > 0
    filter_ = await caches.sketch.snapshot([part])
    assert own.mediator.changes.subscriptions is not None
    database_id = own.mediator.data.model.databases[database].id
    position = await own.mediator.changes.subscriptions.now(database_id)
    # The systems come back without what they had: nobody is told of that.
    route = own.mediator.data.model.databases[database].classes["things"]
    for fragment in route.fragments:
        store = own.mediator.systems.get(fragment.system).store
        kind, groups = WriteKind.DELETE, tuple(fragment.groups)
        await store.write(
            [Write(fragment, id_, kind, unique("op"), groups) for id_ in ("kept", "newer")]
        )
    assert not (await caches.sketch.snapshot([part])).revalidate_all
    await restore(own, tmp_path / "b", force=True)
    now = await caches.sketch.snapshot([part])
    assert now.generation != filter_.generation
    assert now.revalidate_all, "a copy of what is no more is taken for fresh"
    assert (await caches.sketch.report_read(part, [keys[0]], 60.0)).ttl_us == 0
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database_id, position)
    old = Manifest.from_json((tmp_path / "b" / MANIFEST).read_bytes()).databases[database].position
    assert old is not None
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database_id, FeedPosition.parse(old, "p"))
    assert await own.values(database, "things", "kept") == {"title": "first"}
    with pytest.raises(NotFound):
        await own.get(database, "things", "newer")


def command(of: Service, *words: str) -> Awaitable[asyncio.subprocess.Process]:
    told = ("name", "kind", "url", "namespace", "deadline_s")
    systems = [{name: getattr(c, name) for name in told} for c in of.configs.values()]
    settings = {
        "PORTOLAN_CATALOGUE_URL": of.catalogue_url,
        "PORTOLAN_SYSTEMS": orjson.dumps(systems).decode(),
        "PORTOLAN_SKETCH": "off",
    }
    return asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from app.cli import main; main()", *words),
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def done(of: Service, *words: str) -> str:
    process = await command(of, *words)
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    return output


async def test_a_backup_that_is_killed_is_none(mediator: Service, tmp_path: Path) -> None:
    own = mediator
    database = await filled(own, 600)
    directory = tmp_path / "b"
    process = await command(own, "backup", str(directory), "--database", database)

    async def begun() -> bool:
        return await asyncio.to_thread((directory / database / "things.ndjson.gz").exists)

    await eventually(begun)
    process.kill()
    await process.communicate()
    if not (directory / MANIFEST).exists():  # it may have been faster than the signal
        with pytest.raises(ArchiveInvalid, match="no backup"):
            await restore(own, directory, force=True)
    assert "600 objects" in await done(
        own, "backup", str(tmp_path / "again"), "--database", database
    )


async def test_a_restoration_that_is_killed_is_begun_again(
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
    process.kill()
    await process.communicate()
    output = await done(target, "restore", str(tmp_path / "b"), "--force")
    assert "objects put: 600" in output
    saved = lines_of(tmp_path / "b", database, "things")

    async def whole() -> bool:
        return values_of(await held(target, database, "things")) == values_of(saved)

    await eventually(whole)
