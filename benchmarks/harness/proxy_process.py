"""Runs the processes of other projects' servers: reverse proxies, and peers."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from app.commands.demo.failed import Failed

__all__ = ["check_alive", "program", "running", "scratch", "until_it_answers"]


def program(name: str) -> str:
    """Return the path of a server: Debian keeps servers out of a user's path."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        raise Failed(f"{name} is not installed here")
    return path


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix=f"portolan-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@asynccontextmanager
async def running(
    *command: str, log: Path, env: Mapping[str, str], pass_fds: tuple[int, ...] = ()
) -> AsyncIterator[Process]:
    """Run a server; stop it and wait for its end."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            pass_fds=pass_fds,
        )
    try:
        yield process
    finally:
        await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), 10.0)
    except TimeoutError:
        process.kill()
        await process.wait()


def check_alive(process: Process, log: Path) -> None:
    """Raise `Failed` with the output of a server, if it has ended."""
    if process.returncode is not None:
        raise Failed(log.read_text())


async def until_it_answers(url: str, process: Process, log: Path) -> None:
    """Wait until a server answers; a proxy refuses the method itself, without any origin."""
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            check_alive(process, log)
            try:
                await client.request("TRACE", url, timeout=5.0)
            except httpx.TransportError:
                await asyncio.sleep(0.02)
            else:
                return
