"""Backups and their restoration, on the three real servers, in use and killed half way."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from app.coherence.caches import Caches, make_caches
from app.settings import CacheSettings
from mediator.archive.backup import Progress
from mediator.archive.filling import Restored
from mediator.archive.model import MANIFEST, ArchiveInvalid, Manifest
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.rows import KEPT, LEFT, CatalogueRows
from mediator.catalogue.runs import CatalogueRuns
from mediator.catalogue.tables import metadata
from mediator.changes.feed import PositionGone
from mediator.changes.position import FeedPosition
from mediator.clock import SystemClock
from mediator.errors import Conflict, MediatorError, NotFound
from mediator.guard import guard_key
from mediator.operations.model import Delete, Put
from mediator.planes import SystemRegistration
from mediator.service import Mediator, MediatorOptions
from mediator.stores.kinds import make_store
from mediator.stores.port import SystemConfig, Write, WriteKind
from sketch.port import Part
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
        "hits": field_on("redis", "integer", cache_group="hits"),
        "tags": field_on("mongo", "set", items="string", cache_group="tags"),
        "price": field_on("postgres", "decimal"),
        "at": field_on("postgres", "timestamp"),
    }
}


@pytest.fixture
async def installation(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[Callable[..., Awaitable[Service]]]:
    """Starts installations, each with a catalogue and namespaces of its own."""
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Service:
            enter = stack.enter_async_context
            url = await enter(scratch_catalogue(postgresql_config))
            configs = await enter(scratch_systems(redis_config, postgresql_config, mongodb_config))
            patient = [replace(config, deadline_s=10.0) for config in configs]
            started = await enter(service(patient, url, **options))
            await started.favour()
            return started

        yield start


def ignore(_: Progress) -> None: ...


async def back_up(of: Service, directory: Path, *databases: str) -> Manifest:
    return await of.mediator.archive.backup(ignore).write(directory, databases or None)


async def restore(to: Service, directory: Path, **options: bool) -> Restored:
    return await to.mediator.archive.restoration(ignore).run(directory, **options)


def lines_of(directory: Path, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    text = gzip.decompress((directory / database / f"{class_name}.ndjson.gz").read_bytes())
    return {line["id"]: line for line in map(orjson.loads, text.splitlines())}


async def held(of: Service, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    """Return all objects as JSON, by id."""
    from mediator.archive.backup import pages

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
    for number in range(count):
        await put(of, database, f"t{number:04}", title=f"n{number}", hits=number, tags=["a", "é"])
    return database


async def test_what_was_saved_in_use_is_restored_elsewhere(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
    database = await filled(source, 520)  # more than a page
    states: defaultdict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for id_, seen in (await held(source, database, "things")).items():
        for group, version in seen["versions"].items():
            states[id_, group][version] = seen["values"]
    ended = asyncio.Event()

    async def write(own: str) -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            # Each writer has objects of its own, some of which come and go.
            id_, values = f"t{own}{turn % 40:03}", {"title": own, "hits": turn, "tags": [own]}
            if turn % 7 == 0:
                gone = Delete(database, "things", id_, unique("op"))
                await asyncio.gather(source.mediator.data.write(gone), return_exceptions=True)
                continue
            versions = await put(source, database, id_, **values)
            for group, version in versions.items():
                states[id_, group][version or 0] = values

    async with asyncio.TaskGroup() as tasks:
        for own in "01":
            tasks.create_task(write(own))
        manifest = await back_up(source, tmp_path / "b", database)
        ended.set()
    saved = lines_of(tmp_path / "b", database, "things")
    assert manifest.databases[database].classes["things"].lines == len(saved) >= 500
    groups = source.mediator.data.model.databases[database].classes["things"].groups
    for id_, line in saved.items():
        assert line["versions"].keys() == groups.keys(), "an object lacks a part"
        for group, version in line["versions"].items():
            then = states[id_, group][version]
            for name in groups[group]:
                assert line["values"].get(name) == then.get(name), (id_, group)
    report = await restore(target, tmp_path / "b")
    assert (report.created, report.put, report.deleted) == ([database], len(saved), 0)
    found = await held(target, database, "things")
    assert {i: o["values"] for i, o in found.items()} == {i: o["values"] for i, o in saved.items()}
    for id_, line in saved.items():
        assert all(found[id_]["versions"][g] > v for g, v in line["versions"].items())


async def test_a_database_that_is_there_becomes_what_was_saved(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
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
    assert {i: o["values"] for i, o in after.items()} == {i: o["values"] for i, o in before.items()}
    assert all(v > (later[g] or 0) for g, v in after["t0003"]["versions"].items())


async def test_classes_that_ask_for_if_match_and_values_of_all_kinds(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
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
    body = {"b": "AP8=", "d": {"": [1, 1.5, None]}, "f": 1.0, "m": {"é": 2**62}, "n": None}
    values = route.codec.decode_object({**body, "x": "1.10"})
    await own.mediator.data.write(Put(database, "odd", "é\u00ff", unique("op"), values=values))
    await back_up(own, tmp_path / "b", database)
    before = await held(own, database, "odd")
    await own.create(database, "odd", "extra", n="x")
    await restore(own, tmp_path / "b", force=True)
    after = await held(own, database, "odd")
    assert {i: o["values"] for i, o in after.items()} == {i: o["values"] for i, o in before.items()}


@pytest.fixture
async def saved(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
) -> tuple[Service, Path, str]:
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
    _, directory, database = saved
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
        await own.mediator.archive.restoration(ignore).run(directory, ["nowhere"])


async def test_a_clock_that_is_behind_restores_nothing(
    saved: tuple[Service, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, directory, _ = saved
    monkeypatch.setattr(own.mediator._options.clock, "now", lambda: 1_000_000.0, raising=False)
    with pytest.raises(Conflict, match="clock"):
        await restore(own, directory)
    assert await own.mediator.control.databases() == []


async def test_a_schema_that_is_set_meanwhile_ends_the_backup(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
) -> None:
    own = await installation()
    database = await filled(own, 1)
    control = own.mediator.control
    setting: list[asyncio.Task[Any]] = []

    def tell(_: Progress) -> None:
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
            await own.mediator.archive.backup(tell).write(tmp_path / "b")
    assert not (tmp_path / "b" / MANIFEST).exists()


async def test_every_table_of_the_catalogue_is_kept_or_left() -> None:
    assert {*KEPT, *LEFT} == {*metadata.tables.values()}
    assert not {*KEPT} & {*LEFT}


async def test_rows_of_the_catalogue_come_back_once(
    installation: Callable[..., Awaitable[Service]],
) -> None:
    source, target = await installation(), await installation()
    secret = await source.mediator.secret("cursors", "first")
    ids = [uuid4().hex for _ in range(2)]
    runs = CatalogueRuns(Catalogue(source.catalogue_url))
    for id_ in ids:
        await runs.submit(id_, "club", {"kind": "k"}, dry_run=False, key=None, fingerprint=None)
    await runs.cancel("club", ids[0])
    told = await CatalogueRows(Catalogue(source.catalogue_url)).read()
    assert [row["row"]["id"] for row in told if row["table"] == "runs"] == [ids[0]]
    rows = CatalogueRows(Catalogue(target.catalogue_url))
    told = orjson.loads(orjson.dumps([*told, {"table": "later", "row": {}}]))
    assert [await rows.add(told), await rows.add(told)] == [2, 0]
    assert await target.mediator.secret("cursors", "other") == secret == "first"
    restored = await target.mediator.runs.find("club", ids[0])
    assert restored == await source.mediator.runs.find("club", ids[0])


@pytest.fixture
async def caches(redis_config: SystemConfig) -> AsyncIterator[Caches]:
    made = make_caches(CacheSettings(sketch="redis", cache_longest_s=60.0), redis_config.url)
    assert made is not None
    yield made
    await made.stop()
    await made.close()


async def test_no_copy_from_before_is_taken_for_fresh(
    installation: Callable[..., Awaitable[Service]],
    caches: Caches,
    redis_config: SystemConfig,
    tmp_path: Path,
) -> None:
    own = await installation(guard=caches.guard, coordination_url=redis_config.url)
    caches.start(own.mediator.settlement, lambda: own.mediator.data.model)
    database = await own.put_schema({"things": SPREAD})
    part = Part(database, "things")
    await caches.sketch.create(part)
    await put(own, database, "kept", title="first")
    await back_up(own, tmp_path / "b", database)
    await put(own, database, "kept", title="second")
    await put(own, database, "newer", title="written after the backup")
    keys = [guard_key("things", id_, "main") for id_ in ("kept", "newer")]
    for key in keys:
        assert (await caches.sketch.report_read(part, [key], 60.0)).ttl_us > 0
    filter_ = await caches.sketch.snapshot([part])
    assert own.mediator.changes.subscriptions is not None
    position = await own.mediator.changes.subscriptions.now(database)
    # The systems come back without what they had: nobody is told of that.
    route = own.mediator.data.model.databases[database].classes["things"]
    for fragment in route.fragments:
        store = own.mediator._systems.get(fragment.system).store
        kind, groups = WriteKind.DELETE, tuple(fragment.groups)
        await store.write(
            [Write(fragment, id_, kind, unique("op"), groups) for id_ in ("kept", "newer")]
        )
    assert not (await caches.sketch.snapshot([part])).revalidate_all
    await restore(own, tmp_path / "b", force=True)
    now = await caches.sketch.snapshot([part])
    assert now.incarnation != filter_.incarnation
    assert now.revalidate_all, "a copy of what is no more is taken for fresh"
    assert (await caches.sketch.report_read(part, [keys[0]], 60.0)).ttl_us == 0
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database, position)
    old = Manifest.from_json((tmp_path / "b" / MANIFEST).read_bytes()).databases[database].position
    assert old is not None
    with pytest.raises(PositionGone):
        await own.mediator.changes.subscriptions.open(database, FeedPosition.parse(old, "p"))
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


async def test_a_backup_that_is_killed_is_none(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
) -> None:
    own = await installation()
    database = await filled(own, 600)
    directory = tmp_path / "b"
    process = await command(own, "backup", str(directory))

    async def begun() -> bool:
        return await asyncio.to_thread((directory / database / "things.ndjson.gz").exists)

    await eventually(begun)
    process.kill()
    await process.communicate()
    if process.returncode != 0:  # it may have been faster than the signal
        with pytest.raises(ArchiveInvalid, match="no backup"):
            await restore(own, directory, force=True)
    assert "600 objects" in await done(own, "backup", str(tmp_path / "again"))


async def test_a_restoration_that_is_killed_is_begun_again(
    installation: Callable[..., Awaitable[Service]], tmp_path: Path
) -> None:
    source, target = await installation(), await installation()
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
        found = await held(target, database, "things")
        return {i: o["values"] for i, o in found.items()} == {
            i: o["values"] for i, o in saved.items()
        }

    await eventually(whole)
