"""Eve: REST over MongoDB, served by gunicorn; `make peers` installs both.

It has no atomic update: PATCH sets given values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Final
from urllib.parse import quote

import orjson

from app.commands.demo.http1 import render
from benchmarks.harness.delay import LOOPBACK
from benchmarks.harness.peers.operations import (
    OBJECTS,
    PAGE,
    SHELVES,
    Requests,
    object_id,
    puts_and_gets,
)
from benchmarks.harness.peers.peer import ENVIRONMENTS, Peer, Running, free_port, installed, serving
from benchmarks.harness.proxy_process import scratch

__all__ = ["EVE"]

_SERVICE: Final = ENVIRONMENTS / "eve"
_ENVIRONMENT: Final = Path(__file__).parents[3] / ".venv-peers"
_JSON: Final = {"Content-Type": "application/json"}
_CONDITIONS: Final = [quote(orjson.dumps({"shelf": shelf})) for shelf in range(SHELVES)]
_PATHS: Final = [f"/articles/{object_id(number)}" for number in range(OBJECTS)]

_REQUESTS: Final[Requests] = {
    **puts_and_gets(_PATHS, _JSON),
    "filtered page": [
        render("GET", f"/articles?where={condition}&max_results={PAGE}")
        for condition in _CONDITIONS
    ],
}


@asynccontextmanager
async def _serve(url: str) -> AsyncIterator[Running]:
    gunicorn, port = str(installed(_ENVIRONMENT / "bin" / "gunicorn")), free_port()
    # Threads, because its default workers close a connection after each reply.
    command = [
        gunicorn, "--chdir", str(_SERVICE), "--bind", f"{LOOPBACK}:{port}", "--workers", "1",
        "--worker-class", "gthread", "--threads", "16", "--keep-alive", "60",
        "--no-control-socket", "--log-level", "warning", "articles:app",
    ]  # fmt: skip
    with scratch("eve") as directory:
        env = {"PEER_MONGO_URL": f"{url}peers"}
        async with serving(command, port, directory / "log", env) as address:
            yield Running(address, f"{_version('eve')}, gunicorn {_version('gunicorn')}")


def _version(package: str) -> str:
    paths = [str(path) for path in _ENVIRONMENT.glob("lib/python*/site-packages")]
    return next(iter(distributions(name=package, path=paths))).version


EVE: Final = Peer("Eve", "mongodb", _REQUESTS, _serve)
