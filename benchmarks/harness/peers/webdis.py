"""webdis: Redis commands over HTTP, from Debian's package."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import orjson

from app.commands.demo.http1 import render
from benchmarks.harness.delay import LOOPBACK
from benchmarks.harness.peers.operations import OBJECTS, Requests, object_id, some_object
from benchmarks.harness.peers.peer import Peer, Running, free_port, serving
from benchmarks.harness.proxy_process import program, scratch

__all__ = ["WEBDIS"]

_ERROR: Final = b"[false,"
_VERSION: Final = re.compile(r"Webdis (\S+) up")
_NUMBERS: Final = range(OBJECTS)

_REQUESTS: Final[Requests] = {
    "PUT": [
        render("PUT", f"/SET/peer:{object_id(n)}", orjson.dumps(some_object(n))) for n in _NUMBERS
    ],
    "GET": [
        render("GET", f"/GET/peer:{object_id(n)}?type=application/json") for n in _NUMBERS
    ],
    # Redis sees no fields in a JSON value, so the counters are in hashes.
    "atomic update": [render("GET", f"/HINCRBY/peer_hits:{object_id(n)}/hits/1") for n in _NUMBERS],
}  # fmt: skip


@asynccontextmanager
async def _serve(url: str) -> AsyncIterator[Running]:
    with scratch("webdis") as directory:
        port, log = free_port(), directory / "log"
        settings = directory / "webdis.json"
        settings.write_bytes(orjson.dumps(_settings(url, port, log)))
        async with serving([program("webdis"), str(settings)], port, log) as address:
            version = _VERSION.search(log.read_text())
            yield Running(address, version[1] if version else "of unknown version")


def _settings(url: str, port: int, log: Path) -> dict[str, object]:
    """Return Debian's settings, except the addresses of webdis and of Redis."""
    return {
        "redis_host": unquote(urlsplit(url).path),
        "http_host": LOOPBACK,
        "http_port": port,
        "threads": 2,
        "database": 0,
        "verbosity": 3,
        "logfile": str(log),
    }


WEBDIS: Final = Peer("webdis", "redis", _REQUESTS, _serve, _ERROR)
