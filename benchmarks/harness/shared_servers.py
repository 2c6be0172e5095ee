"""The service on embedded servers that its baseline uses as well, with the same durability."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadProcess, LoadResult
from app.commands.demo.service import RequestFailed, Service, serving_here
from app.commands.demo.workload import drive
from app.service.container import on_embedded
from app.settings.main import CacheSettings, MediatorSettings
from mediator.data_plane.port import DataPlane
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.mongodb import STAND_IN
from mediator.embedded.port import Durability, Endpoint, Kind
from mediator.embedded.redis import EmbeddedRedis

__all__ = [
    "ARTICLE_FIELDS",
    "BATCH",
    "CLASS",
    "REQUIREMENT",
    "SharedService",
    "batches",
    "database_on",
    "declare_requirements",
    "embedded_fleet",
    "embedded_redis",
    "field_on",
    "hits",
    "object_limit",
    "shared_service",
    "some_object",
    "state_metrics",
    "updates",
]

CLASS: Final = "articles"
"""The one class of the databases that `SharedService.tie` sets up."""

ARTICLE_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "title": {"type": "string", "required": True, "max_length": 300},
    "author": {"type": "string"},
    "hits": {"type": "integer", "default": 0},
}
"""The fields of that class."""

BATCH: Final = 100
"""Updates in a batch of `batches`."""

REQUIREMENT: Final[Mapping[Kind, str]] = {
    "redis": "elasticity",
    "postgresql": "joins",
    "mongodb": "data_volume_scalability",
}
"""The capability that only one kind of system is declared to have."""

_BEST: Final[Mapping[str, str]] = {
    "redis": "write_throughput",
    "postgresql": "read_latency",
    "mongodb": "read_throughput",
}
_MAX_ON_STAND_IN: Final = 10_000
_MINIMAL: Final = {"Content-Type": "application/json", "Prefer": "return=minimal"}
_UPDATE: Final = {"Content-Type": "application/vnd.portolan.update+json"}
_CREATE_BATCH: Final = 500
# A stand-in for MongoDB that cannot count integers exactly counts floats.
_COUNTERS: Final = ("integer", "float")


@dataclass(frozen=True, slots=True)
class SharedService:
    """A running service and its servers; servers that this machine cannot run are missing."""

    service: Service
    servers: Mapping[Kind, Endpoint]
    plane: DataPlane

    def require(self, *kinds: Kind) -> None:
        if missing := sorted({*kinds} - self.servers.keys()):
            raise Failed(f"this machine cannot run {', '.join(missing)}")

    async def drive(self, load: LoadProcess, lane: LoadLane, seconds: float) -> LoadResult:
        (result,) = await drive(load, self.service, [lane], seconds)
        return result

    async def tie(self, cache: Mapping[str, Any] | None = None) -> dict[Kind, str]:
        """Set up a database for each kind of system, wholly on it.

        Without a `cache` policy nothing is cached.

        Returns:
            The type of the counter ``hits`` in each.
        """
        await declare_requirements(self.service)
        return {kind: await self._tie(kind, cache) for kind in self.servers}

    async def fill(self, kind: Kind, objects: int) -> None:
        """Create objects ``a0`` and so on in the database that is tied to a kind of system."""
        for first in range(0, objects, _CREATE_BATCH):
            numbers = range(first, min(first + _CREATE_BATCH, objects))
            batch = {f"a{number}": some_object(number) for number in numbers}
            await self.service.create(database_on(kind), {CLASS: batch})

    async def _tie(self, kind: Kind, cache: Mapping[str, Any] | None) -> str:
        for counter in _COUNTERS:
            try:
                await self.service.set_schema(database_on(kind), _schema(kind, counter, cache))
            except RequestFailed:
                if counter == _COUNTERS[-1]:
                    raise
            else:
                return counter
        raise AssertionError


def _schema(kind: Kind, counter: str, cache: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = {**ARTICLE_FIELDS, "hits": {"type": counter, "default": 0}}
    return {
        "mode": "mixed",
        "annotations": [{"require": REQUIREMENT[kind]}],
        "classes": {CLASS: {"cache": cache or {"visibility": "none"}, "fields": fields}},
    }


def database_on(kind: Kind) -> str:
    return f"on_{kind}"


def some_object(number: int) -> dict[str, Any]:
    return {"title": f"The harbour reopens, part {number}", "author": f"p{number % 10}", "hits": 0}


def hits(paths: Iterable[str]) -> list[bytes]:
    """Render requests that each count one hit of an object."""
    body = orjson.dumps({"hits": {"inc": 1}})
    return [render("PATCH", path, body, _UPDATE) for path in paths]


def updates(database: str, objects: int) -> list[bytes]:
    """Render batches that together count one hit of each object."""
    update = {"op": "update", "class": CLASS, "body": {"hits": {"inc": 1}}}
    return batches(database, [{**update, "id": f"a{number}"} for number in range(objects)])


def batches(database: str, operations: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Render operations as requests of `BATCH` each."""
    bodies = [
        orjson.dumps({"operations": operations[at : at + BATCH]})
        for at in range(0, len(operations), BATCH)
    ]
    return [render("POST", f"/v1/{database}/batch", body, _MINIMAL) for body in bodies]


async def declare_requirements(service: Service) -> list[dict[str, Any]]:
    """Declare for each kind of system the capability that only it has; return the systems."""
    return await service.declare({kind: (capability,) for kind, capability in REQUIREMENT.items()})


async def state_metrics(service: Service) -> None:
    """State that each kind of system is the best in one metric, and the worst in the others."""
    worst = {"write_throughput": 1.0, "read_latency": 1000.0, "read_throughput": 1.0}
    best = {"write_throughput": 1e6, "read_latency": 1e-6, "read_throughput": 1e6}
    metrics = {kind: {**worst, metric: best[metric]} for kind, metric in _BEST.items()}
    await service.state(metrics)


def field_on(kind: str) -> dict[str, Any]:
    """Return the annotations that place a field on a kind of system, after `state_metrics`."""
    return {"annotations": [{"metric": _BEST[kind], "goal": 1000}]}


def object_limit(server: Endpoint, objects: int) -> int:
    """Return the number of objects for a server: few, if it has no indexes."""
    return min(objects, _MAX_ON_STAND_IN) if server.server == STAND_IN else objects


@contextlib.asynccontextmanager
async def embedded_redis() -> AsyncIterator[Endpoint]:
    with tempfile.TemporaryDirectory(prefix="portolan-bench-") as scratch:
        server = EmbeddedRedis(Path(scratch))
        endpoint = await asyncio.to_thread(server.start)
        try:
            yield endpoint
        finally:
            await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def embedded_fleet(
    durability: Durability = "second",
) -> AsyncIterator[tuple[EmbeddedFleet, Path]]:
    """Run embedded servers while the block runs; also yield the directory of their data."""
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="portolan-bench-"))
        fleet = EmbeddedFleet(Path(scratch), durability)
        yield await asyncio.to_thread(stack.enter_context, fleet), Path(scratch)


@contextlib.asynccontextmanager
async def shared_service(caching: CacheSettings | None = None) -> AsyncIterator[SharedService]:
    """Run the service on its own servers; without `caching` it has no sketch.

    Raises:
        Interrupted: SIGINT or SIGTERM came meanwhile.
    """
    async with embedded_fleet() as (fleet, _):
        settings = on_embedded(MediatorSettings(), fleet.endpoints)
        async with serving_here(settings, caching) as (running, service):
            yield SharedService(service, fleet.endpoints, running.container.mediator.data)
