"""The service on embedded servers that its baseline uses as well, with the same durability."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.commands.demo.service import RequestRefused, Service
from app.service.container import on_embedded
from app.service.interruption import interruptible
from app.service.serving import serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from mediator.data_plane.port import DataPlane
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import Endpoint, Kind

__all__ = ["CLASS", "SharedService", "database_on", "shared_service", "some_object"]

CLASS: Final = "articles"
"""The one class of the databases that `SharedService.tie` sets up."""

_ONLY: Final[Mapping[Kind, str]] = {
    "redis": "elasticity",
    "postgresql": "joins",
    "mongodb": "data_volume_scalability",
}
# A stand-in for MongoDB that cannot count integers exactly counts floats.
_COUNTERS: Final = ("integer", "float")


@dataclass(frozen=True, slots=True)
class SharedService:
    """A service that runs, and the servers below it.

    Attributes:
        service: The way to the service.
        servers: The servers below it by kind; what this machine cannot run is missing.
        plane: The service's data plane.
    """

    service: Service
    servers: Mapping[Kind, Endpoint]
    plane: DataPlane

    async def tie(self, cache: Mapping[str, Any] | None = None) -> dict[Kind, str]:
        """Set up a database for each kind of system, wholly on it.

        Args:
            cache: The cache policy of its class; None: nothing is cached.

        Returns:
            The type of the counter ``hits`` in each.
        """
        await self.service.declare({kind: (word,) for kind, word in _ONLY.items()})
        return {kind: await self._tie(kind, cache) for kind in self.servers}

    async def _tie(self, kind: Kind, cache: Mapping[str, Any] | None) -> str:
        for counter in _COUNTERS:
            try:
                await self.service.set_schema(database_on(kind), _schema(kind, counter, cache))
            except RequestRefused:
                if counter == _COUNTERS[-1]:
                    raise
            else:
                return counter
        raise AssertionError


def _schema(kind: Kind, counter: str, cache: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = {
        "title": {"type": "string", "required": True, "max_length": 300},
        "author": {"type": "string"},
        "hits": {"type": counter, "default": 0},
    }
    return {
        "mode": "mixed",
        "annotations": [{"require": _ONLY[kind]}],
        "classes": {CLASS: {"cache": cache or {"visibility": "none"}, "fields": fields}},
    }


def database_on(kind: Kind) -> str:
    """Name the database that is wholly on systems of a kind."""
    return f"on_{kind}"


def some_object(number: int) -> dict[str, Any]:
    """Make up an object of `CLASS`."""
    return {"title": f"The harbour reopens, part {number}", "author": f"p{number % 10}", "hits": 0}


@contextlib.asynccontextmanager
async def shared_service(caching: CacheSettings | None = None) -> AsyncIterator[SharedService]:
    """Run servers, and the service on them, in a scratch directory while the block runs.

    Without `caching` the service has no sketch.

    Raises:
        Interrupted: SIGINT or SIGTERM came meanwhile.
    """
    http = HttpSettings(port=0, admin_port=0, log_level="warning")
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        servers = await loop.run_in_executor(None, stack.enter_context, _servers())
        settings = on_embedded(MediatorSettings(), servers)
        async with (
            serving(http, settings, caching) as running,
            interruptible(running.ended),
            Service.at(running.addresses.data, running.addresses.admin) as service,
        ):
            yield SharedService(service, servers, running.container.mediator.data)


@contextlib.contextmanager
def _servers() -> Iterator[Mapping[Kind, Endpoint]]:
    with (
        tempfile.TemporaryDirectory(prefix="portolan-bench-") as scratch,
        EmbeddedFleet(Path(scratch)) as fleet,
    ):
        yield fleet.endpoints
