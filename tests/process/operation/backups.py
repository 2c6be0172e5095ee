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


async def back_up(service: Service, directory: Path, *databases: str) -> Manifest:
    return await Backup(service.mediator.installation, ignore).write(directory, databases or None)


async def restore(service: Service, directory: Path, **options: bool) -> Restored:
    return await Restoration(service.mediator.installation, ignore).run(directory, None, **options)


async def start_command(service: Service, *arguments: str) -> Forked:
    """Start a command on an installation, in a separate process."""
    names = ("name", "kind", "url", "namespace", "deadline_s")
    systems = [{name: getattr(c, name) for name in names} for c in service.configs.values()]
    settings = {
        "PORTOLAN_CATALOGUE_URL": service.catalogue_url,
        "PORTOLAN_SYSTEMS": orjson.dumps(systems).decode(),
        "PORTOLAN_SKETCH": "off",
    }
    return await Forked.start(arguments, {**os.environ, **settings})


async def run_command(service: Service, *arguments: str) -> str:
    """Return the output of a command that succeeds."""
    process = await start_command(service, *arguments)
    status, output = await process.ended()
    assert status == 0, output
    return output


def lines_in(file: Path) -> list[Any]:
    return [*map(orjson.loads, gzip.decompress(file.read_bytes()).splitlines())]


def lines_of(directory: Path, database: str, class_name: str) -> dict[str, dict[str, Any]]:
    lines = lines_in(directory / database / f"{class_name}.ndjson.gz")
    return {line["id"]: line for line in lines}


async def stored_objects(
    service: Service, database: str, class_name: str
) -> dict[str, dict[str, Any]]:
    """Return all objects as JSON, by id."""
    route = await service.mediator.data.route(database, class_name)
    return {
        o.id: {"versions": dict(o.versions), "values": route.codec.encode(o.values or {})}
        async for page in pages(service.mediator.data, database, class_name)
        for o in page
    }


async def put(service: Service, database: str, id_: str, **values: Any) -> dict[str, int | None]:
    operation = Put(database, "things", id_, unique("op"), values=values)
    return dict((await service.mediator.data.write(operation)).versions)


async def create_database(service: Service, count: int = 30) -> str:
    database = await service.put_schema({"things": SPREAD})
    ids = [f"t{number:04}" for number in range(count)]
    rows: list[dict[str, Any]] = [
        {"title": id_, "hits": len(id_), "tags": ["a", "é"]} for id_ in ids
    ]
    pairs = zip(ids, rows, strict=True)
    puts = [Put(database, "things", id_, unique("op"), values=row) for id_, row in pairs]
    assert all(isinstance(o, Outcome) for o in await service.mediator.data.batch(puts))
    return database


States = defaultdict[tuple[str, str], dict[int, Any]]


MERGE = {"content-type": "application/merge-patch+json"}


def client_of(service: Service, database: str) -> httpx.AsyncClient:
    api = DataApi(service.mediator.data, DataOptions(cursor_key=b"k" * 32), lambda _: None)
    base = f"http://portolan/v1/{database}/things/"
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base)


async def tags_of(http: httpx.AsyncClient, id_: str) -> dict[str, str]:
    """Return the tags of an object, and of one group of it."""
    paths = (id_, f"{id_}?fields=hits")
    return {path: (await http.get(path)).headers["etag"] for path in paths}


def values_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {id_: object_["values"] for id_, object_ in objects.items()}
