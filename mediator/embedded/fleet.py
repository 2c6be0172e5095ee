"""The embedded servers of one service, started and stopped together; or joined as they run."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from mediator.embedded.directories import DataDirectoryLock
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.mongodb import EmbeddedMongo
from mediator.embedded.port import (
    Durability,
    EmbeddedServer,
    EmbeddedStartError,
    Endpoint,
    Kind,
    ServerUnavailable,
)
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis

__all__ = ["EmbeddedFleet", "FleetState", "join"]


@dataclass(frozen=True, slots=True)
class FleetState:
    """The servers that run, and those that this machine cannot run."""

    endpoints: Mapping[Kind, Endpoint] = field(default_factory=dict)
    unavailable: tuple[ServerUnavailable, ...] = ()


class EmbeddedFleet:
    """Redis, PostgreSQL and MongoDB in one data directory.

    A context manager: leaving it stops every server. It also stops them when the interpreter
    exits, so a service has to turn SIGTERM into an exit and nothing more. Servers that outlive a
    killed service are adopted by the next fleet on the same directory.

    Args:
        data_dir: The directory; created when it is not there.
        durability: What a crash of a server may lose.
    """

    def __init__(self, data_dir: Path, durability: Durability = "second") -> None:
        self._mutex = threading.RLock()
        self._lock = DataDirectoryLock(data_dir)
        self._servers: tuple[EmbeddedServer, ...] = (
            EmbeddedRedis(data_dir / "redis", durability),
            EmbeddedPostgres(data_dir / "postgresql", durability),
            EmbeddedMongo(data_dir / "mongodb", durability),
        )
        self._state = FleetState()

    @property
    def endpoints(self) -> Mapping[Kind, Endpoint]:
        """The servers that run, by kind."""
        return self._state.endpoints

    @property
    def unavailable(self) -> tuple[ServerUnavailable, ...]:
        """The servers that this machine cannot run, with reasons and remedies."""
        return self._state.unavailable

    def start(self) -> FleetState:
        """Start, adopt or revive every server, at the same time; block until they reply.

        A further call starts the servers that have exited; `revive` does so without pings.

        Returns:
            The servers that run and those that cannot.

        Raises:
            DataDirectoryBusy: Another service uses the directory.
            EmbeddedStartError: A server is installed and did not come up; all are stopped.
        """
        with self._mutex:
            self._lock.acquire()
            atexit.register(self.stop)
            try:
                self._state = self._start_all()
            except BaseException:
                self.stop()
                raise
            return self._state

    def revive(self) -> tuple[Kind, ...]:
        """Restart the servers that have exited since the start, and no others.

        It costs next to nothing while all of them run.

        Returns:
            The kinds that were restarted.

        Raises:
            ServerUnavailable: A program is no longer there.
            EmbeddedStartError: A server does not come up. The others are not touched by that.
        """
        with self._mutex:
            exited = [
                s for s in self._servers if s.kind in self._state.endpoints and not s.is_running
            ]
            failures = [error for server in exited if (error := _start(server))]
        if failures:
            raise failures[0]
        return tuple(server.kind for server in exited)

    def _start_all(self) -> FleetState:
        endpoints: dict[Kind, Endpoint] = {}
        unavailable: list[ServerUnavailable] = []
        with ThreadPoolExecutor(len(self._servers), "embedded-start") as threads:
            starts = [(server.kind, threads.submit(server.start)) for server in self._servers]
        for kind, start in starts:
            _collect(kind, start, endpoints, unavailable)
        return FleetState(endpoints, tuple(unavailable))

    def stop(self) -> None:
        """Stop every server and release the directory; harmless when nothing runs."""
        with self._mutex:
            if self._lock.is_held:
                self._stop()

    def _stop(self) -> None:
        atexit.unregister(self.stop)
        self._state = FleetState()
        # One after the other: an interpreter that is exiting starts no more threads.
        with ExitStack() as rest:
            rest.callback(self._lock.release)
            for server in self._servers:
                rest.callback(server.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _collect(
    kind: Kind,
    start: Future[Endpoint],
    endpoints: dict[Kind, Endpoint],
    unavailable: list[ServerUnavailable],
) -> None:
    try:
        endpoints[kind] = start.result()
    except ServerUnavailable as missing:
        unavailable.append(missing)


def _start(server: EmbeddedServer) -> EmbeddedStartError | ServerUnavailable | None:
    try:
        server.start()
    except (EmbeddedStartError, ServerUnavailable) as error:
        return error
    return None


def join(data_dir: Path) -> tuple[Endpoint, Endpoint]:
    """Return the Redis and the PostgreSQL that run in a data directory.

    Raises:
        EmbeddedStartError: They do not run there.
    """
    redis = _running(EmbeddedRedis(data_dir / "redis"), data_dir)
    return redis, _running(EmbeddedPostgres(data_dir / "postgresql"), data_dir)


def _running(server: OwnedServer, data_dir: Path) -> Endpoint:
    endpoint = server.running() if server.directory.exists() else None
    if endpoint is None:
        reason = f"nothing runs in {data_dir}; first start the service there: portolan serve"
        raise EmbeddedStartError(server.kind, f"{reason} --embedded --data-dir {data_dir}")
    return endpoint
