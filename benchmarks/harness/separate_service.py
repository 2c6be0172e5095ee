"""The service in a process of its own, on embedded servers, so that load shares no loop with it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from app.commands.demo.failed import Failed
from app.commands.demo.service import Service
from app.service.serving import Addresses, serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings

__all__ = ["separate_service"]

_STARTS_WITHIN_S = 120.0


@contextlib.asynccontextmanager
async def separate_service(caching: CacheSettings) -> AsyncIterator[Service]:
    """Run the service while the block runs; its sketch is on the embedded Redis.

    Raises:
        Failed: It did not start.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    with TemporaryDirectory(prefix="portolan-bench-") as scratch:
        process = spawn.Process(target=_serve, args=(theirs, Path(scratch), caching))
        process.start()
        theirs.close()
        try:
            at = await asyncio.to_thread(_addresses, ours)
            async with Service.at(at.data, at.admin) as service:
                yield service
        finally:
            process.terminate()
            await asyncio.to_thread(process.join)


def _addresses(ours: Connection) -> Addresses:
    try:
        if ours.poll(_STARTS_WITHIN_S):
            at: Addresses = ours.recv()
            return at
    except EOFError:
        pass
    raise Failed("the service did not start")


def _serve(theirs: Connection, data_dir: Path, caching: CacheSettings) -> None:
    uvloop.run(_serving(theirs, data_dir, caching))


async def _serving(theirs: Connection, data_dir: Path, caching: CacheSettings) -> None:
    http = HttpSettings(port=0, admin_port=0, drain_s=0, log_level="warning")
    settings = MediatorSettings(embedded=True, data_dir=data_dir)
    async with serving(http, settings, caching) as running:
        theirs.send(running.addresses)
        await running.ended.wait()
