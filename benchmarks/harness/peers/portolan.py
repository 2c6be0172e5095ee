"""Portolan as a peer: an instance in a separate process, with a class on each kind of system."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from app.commands.demo.http1 import render
from app.commands.demo.service import Service
from app.service.container import on_embedded
from app.settings.main import MediatorSettings
from benchmarks.harness.instances import Instance, started
from benchmarks.harness.peers.candidate import Address, Candidate
from benchmarks.harness.peers.operations import (
    OBJECTS,
    PAGE,
    SHELVES,
    Requests,
    object_id,
    puts_and_gets,
)
from benchmarks.harness.shared_servers import (
    REQUIREMENT,
    database_on,
    declare_requirements,
    embedded_fleet,
    hits,
)
from mediator.embedded.port import Endpoint, Kind

__all__ = ["Portolan", "portolan"]

_CLASS: Final = "articles"
_JSON: Final = {"Content-Type": "application/json", "Prefer": "return=minimal"}
_FIELDS: Final = {
    "title": {"type": "string", "required": True, "max_length": 300},
    "author": {"type": "string"},
    "summary": {"type": "string"},
    "shelf": {"type": "integer", "index": True},
    "hits": {"type": "integer", "default": 0},
}


@dataclass(frozen=True, slots=True)
class Portolan:
    """A running instance and its servers.

    Attributes:
        candidates: The instance, by the kind of system of the objects.
        versions: Of all systems, by name.
    """

    servers: Mapping[Kind, Endpoint]
    candidates: Mapping[Kind, Candidate]
    versions: Mapping[str, str]


@asynccontextmanager
async def portolan() -> AsyncIterator[Portolan]:
    """Run embedded servers, and an instance in a separate process, while the block runs.

    Raises:
        Interrupted: SIGINT or SIGTERM came meanwhile.
    """
    async with embedded_fleet() as (fleet, _):
        servers = fleet.endpoints
        instance = Instance(on_embedded(MediatorSettings(), servers))
        async with (
            started([instance]),
            Service.at(instance.data, instance.admin) as service,
        ):
            await declare_requirements(service)
            for kind in servers:
                await service.set_schema(database_on(kind), _schema(kind))
            address = Address(service.host, service.port, instance.pid)
            name = f"Portolan {version('portolan')}"
            candidates = {kind: Candidate(address, _requests(kind), name) for kind in servers}
            yield Portolan(servers, candidates, await service.versions())


def _schema(kind: Kind) -> dict[str, Any]:
    return {
        "mode": "mixed",
        "annotations": [{"require": REQUIREMENT[kind]}],
        "classes": {_CLASS: {"cache": {"visibility": "none"}, "fields": _FIELDS}},
    }


def _requests(kind: Kind) -> Requests:
    listing = f"/v1/{database_on(kind)}/{_CLASS}"
    paths = [f"{listing}/{object_id(number)}" for number in range(OBJECTS)]
    return {
        **puts_and_gets(paths, _JSON),
        "atomic update": hits(paths),
        "filtered page": [
            render("GET", f"{listing}?shelf={shelf}&limit={PAGE}") for shelf in range(SHELVES)
        ],
    }
