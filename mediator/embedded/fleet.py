"""The embedded servers of one service, started and stopped together; or joined as they run."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
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

__all__ = ["EmbeddedFleet", "join"]


class EmbeddedFleet:
    """Redis, PostgreSQL and MongoDB in one data directory.

    A context manager: leaving it stops every server. It also stops them when the interpreter
    exits, so a service has to turn SIGTERM into an exit and nothing more. Servers that outlive a
    killed service are adopted by the next fleet on the same directory.

    Args:
        java_options: Options of servers that Java runs, besides our own.

    Attributes:
        endpoints: The servers that run, by kind.
        unavailable: The servers that this machine cannot run, with reasons and remedies.
    """

    def __init__(
        self,
        data_dir: Path,
        durability: Durability = "second",
        java_options: Sequence[str] = (),
    ) -> None:
        self._mutex = threading.RLock()
        self._abandoned = threading.Event()
        self._lock = DataDirectoryLock(data_dir)
        self._servers: tuple[EmbeddedServer, ...] = (
            EmbeddedRedis(data_dir / "redis", durability),
            EmbeddedPostgres(data_dir / "postgresql", durability),
            EmbeddedMongo(data_dir / "mongodb", durability, java_options),
        )
        self.endpoints: Mapping[Kind, Endpoint] = {}
        self.unavailable: tuple[ServerUnavailable, ...] = ()

    def start(self) -> Self:
        """Start, adopt or revive every server, at the same time; block until they reply.

        A further call starts the servers that have exited; `revive` does so without pings.

        Raises:
            DataDirectoryBusy: Another service uses the directory.
            EmbeddedStartError: A server is installed and did not come up; all are stopped.
        """
        with self._mutex:
            self._lock.acquire()
            self._abandoned.clear()
            atexit.register(self.stop)
            try:
                self._start_all()
            except BaseException:
                self.stop()
                raise
        return self

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(self._servers), "embedded-start") as threads:
            starts = [
                (server.kind, threads.submit(server.start, self._abandoned))
                for server in self._servers
            ]
        endpoints: dict[Kind, Endpoint] = {}
        unavailable: list[ServerUnavailable] = []
        for kind, start in starts:
            try:
                endpoints[kind] = start.result()
            except ServerUnavailable as missing:
                unavailable.append(missing)
        self.endpoints, self.unavailable = endpoints, tuple(unavailable)

    def revive(self) -> tuple[Kind, ...]:
        """Restart the servers that have exited since the start; return their kinds.

        It costs next to nothing while all of them run.

        Raises:
            ServerUnavailable: A program is no longer there.
            EmbeddedStartError: A server does not come up; the others are not affected.
        """
        failures: list[EmbeddedStartError] = []
        with self._mutex:
            exited = [s for s in self._servers if s.kind in self.endpoints and not s.is_running]
            for server in exited:
                try:
                    server.start(self._abandoned)
                except EmbeddedStartError as error:
                    failures.append(error)
        if failures:
            raise failures[0]
        return tuple(server.kind for server in exited)

    def stop(self) -> None:
        """Stop every server and release the directory; harmless when nothing runs.

        A start that is under way in another thread is abandoned.
        """
        self._abandoned.set()  # before the mutex, which the start holds
        with self._mutex:
            if not self._lock.is_held:
                return
            atexit.unregister(self.stop)
            self.endpoints, self.unavailable = {}, ()
            # In sequence, as an interpreter that is exiting starts no more threads; one that fails
            # does not keep the others from being stopped.
            with ExitStack() as rest:
                rest.callback(self._lock.release)
                for server in self._servers:
                    rest.callback(server.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


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
