"""A competitor that serves one kind of system over HTTP, and its process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from app.commands.demo.failed import Failed
from benchmarks.harness.delay import LOOPBACK
from benchmarks.harness.peers.candidate import Address, Candidate
from benchmarks.harness.peers.operations import Requests
from benchmarks.harness.proxy_process import running, until_it_answers
from benchmarks.harness.report import Result
from mediator.embedded.port import Endpoint, Kind

__all__ = [
    "ENVIRONMENTS",
    "Peer",
    "Running",
    "absence_reason",
    "absent_result",
    "free_port",
    "installed",
    "serving",
]

ENVIRONMENTS: Final = Path(__file__).parent / "environments"
"""The dependencies of peers that no distribution packages, in versions with hashes."""

_STARTS_WITHIN_S: Final = 60.0


class Running(NamedTuple):
    """The address of a peer, and its version with those of its platform."""

    address: Address
    version: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A competitor.

    Attributes:
        requests: The requests of its operations.
        serve: Runs it on a server, given by its URL; raises `Failed` if it is not installed or does
            not start.
        error: The text in a body that reports an error despite a status of success; None: its
            statuses report all errors.
    """

    name: str
    kind: Kind
    requests: Requests
    serve: Callable[[str], AbstractAsyncContextManager[Running]]
    error: bytes | None = None

    @asynccontextmanager
    async def running(self, servers: Mapping[Kind, Endpoint]) -> AsyncIterator[Candidate]:
        """Run it on one of the servers.

        Raises:
            Failed: That server or the peer itself cannot be run here.
        """
        if self.kind not in servers:
            raise Failed(f"this machine cannot run {self.kind}")
        async with self.serve(servers[self.kind].url) as (address, version):
            yield Candidate(address, self.requests, f"{self.name} {version}", self.error)


@asynccontextmanager
async def serving(
    command: Sequence[str], port: int, log: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Address]:
    """Run a server, and wait until it replies; stop it at the end.

    Raises:
        Failed: It ended, with its output, or does not reply within a minute.
    """
    async with running(*command, log=log, env=env or {}) as process:
        try:
            async with asyncio.timeout(_STARTS_WITHIN_S):
                await until_it_answers(f"http://{LOOPBACK}:{port}/", process, log)
        except TimeoutError:
            raise Failed(f"no reply within {_STARTS_WITHIN_S:.0f} s") from None
        yield Address(LOOPBACK, port, process.pid)


def absence_reason(peer: Peer, failure: Failed) -> str:
    """Return in one line why a peer is not measured."""
    reason = str(failure).strip().splitlines()[-1:] or ["it wrote nothing"]
    return f"{peer.name} is not measured: {reason[0]}"


def absent_result(peer: Peer) -> Result:
    """Return the result of a peer that is not measured: it misses its bar."""
    return Result(f"operations of {peer.name} that ran", "operations", 0, bar=len(peer.requests))


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def installed(file: Path) -> Path:
    """Return a file that `make peers` installs.

    Raises:
        Failed: It does not exist.
    """
    if not file.exists():
        raise Failed("it is not installed: run `make peers`")
    return file
