"""Backups and restorations for tests, and the objects that they compare."""

from __future__ import annotations

import gzip
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.archive.backup import ArchiveProgress, Backup
from mediator.archive.files import Manifest
from mediator.archive.restore import Restoration, Restored
from mediator.data_plane.port import pages
from mediator.model.operations import Outcome, Put
from tests.faults.operation.forked import Forked
from tests.process.service import (
    Service,
    field_on,
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


def ignore(_: ArchiveProgress) -> None: ...


async def back_up(of: Service, directory: Path, *databases: str) -> Manifest:
    return await Backup(of.mediator.installation, ignore).write(directory, databases or None)


async def restore(to: Service, directory: Path, **options: bool) -> Restored:
    return await Restoration(to.mediator.installation, ignore).run(directory, None, **options)


async def command(of: Service, *words: str) -> Forked:
    """Start a command on an installation, in a process of its own."""
    names = ("name", "kind", "url", "namespace", "deadline_s")
    systems = [{name: getattr(c, name) for name in names} for c in of.configs.values()]
    settings = {
        "PORTOLAN_CATALOGUE_URL": of.catalogue_url,
        "PORTOLAN_SYSTEMS": orjson.dumps(systems).decode(),
        "PORTOLAN_SKETCH": "off",
    }
    return await Forked.start(words, {**os.environ, **settings})


async def done(of: Service, *words: str) -> str:
    """Return the output of a command that succeeds."""
    process = await command(of, *words)
    status, output = await process.ended()
    assert status == 0, output
    return output


def lines_in(file: Path) -> list[Any]:
    return [*map(orjson.loads, gzip.decompress(file.read_bytes()).splitlines())]


def lines_of(directory: Path, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    lines = lines_in(directory / database / f"{class_name}.ndjson.gz")
    return {line["id"]: line for line in lines}


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
    pairs = zip(ids, values, strict=True)
    puts = [Put(database, "things", id_, unique("op"), values=each) for id_, each in pairs]
    assert all(isinstance(o, Outcome) for o in await of.mediator.data.batch(puts))
    return database


States = defaultdict[tuple[str, str], dict[int, Any]]


MERGE = {"content-type": "application/merge-patch+json"}


def client_of(of: Service, database: str) -> httpx.AsyncClient:
    api = DataApi(of.mediator.data, DataOptions(cursor_key=b"k" * 32), lambda _: None)
    base = f"http://portolan/v1/{database}/things/"
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base)


async def tags_of(http: httpx.AsyncClient, id_: str) -> dict[str, str]:
    """Return the tags of an object, and of one group of it."""
    paths = (id_, f"{id_}?fields=hits")
    return {path: (await http.get(path)).headers["etag"] for path in paths}


def values_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {id_: each["values"] for id_, each in objects.items()}
