"""Platformatic DB: REST over PostgreSQL.

It has no atomic update: PUT and POST store given values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.commands.demo.http1 import render
from benchmarks.harness.peers.on_postgresql import PRODUCTION, articles_database, package_version
from benchmarks.harness.peers.operations import (
    OBJECTS,
    PAGE,
    SHELVES,
    Requests,
    object_id,
    puts_and_gets,
)
from benchmarks.harness.peers.peer import ENVIRONMENTS, Peer, Running, free_port, serving
from benchmarks.harness.proxy_process import program, scratch

__all__ = ["PLATFORMATIC"]

_JSON: Final = {"Content-Type": "application/json"}
_PATHS: Final = [f"/articles/{object_id(number)}" for number in range(OBJECTS)]

_REQUESTS: Final[Requests] = {
    **puts_and_gets(_PATHS, _JSON, puts_with="?fields=id"),
    "filtered page": [
        render("GET", f"/articles/?where.shelf.eq={shelf}&limit={PAGE}") for shelf in range(SHELVES)
    ],
}


@asynccontextmanager
async def _serve(url: str) -> AsyncIterator[Running]:
    version, port = await package_version("platformatic", "@platformatic/db"), free_port()
    command = [program("node"), str(ENVIRONMENTS / "platformatic" / "serve.mjs")]
    database = await articles_database(url, "peer_platformatic")
    env = {**PRODUCTION, "PEER_DATABASE_URL": database, "PEER_PORT": str(port)}
    with scratch("platformatic") as directory:
        async with serving(command, port, directory / "log", env) as address:
            yield Running(address, version)


PLATFORMATIC: Final = Peer("Platformatic DB", "postgresql", _REQUESTS, _serve)
