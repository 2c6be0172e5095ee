"""The embedded servers of one service: started and stopped together, or joined while running."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
    exits, so a service only has to turn SIGTERM into an exit. The next fleet on the same directory
    adopts servers that outlive a killed service.

    A stopped fleet cannot be started, even if another thread stopped it before its start began.
    Create another one.

    Args:
        java_options: Additional options of servers that Java runs.

    Attributes:
        endpoints: The running servers, by kind.
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
        servers: tuple[EmbeddedServer, ...] = (
            EmbeddedRedis(data_dir / "redis", durability),
            EmbeddedPostgres(data_dir / "postgresql", durability),
            EmbeddedMongo(data_dir / "mongodb", durability, java_options),
        )
        self._servers: Mapping[Kind, EmbeddedServer] = {server.kind: server for server in servers}
        # One lock each: a server can load its data for hours while another must be restarted.
        self._server_locks = {kind: threading.RLock() for kind in self._servers}
        self.endpoints: Mapping[Kind, Endpoint] = {}
        self.unavailable: tuple[ServerUnavailable, ...] = ()

    def start(self) -> Self:
        """Start, adopt or revive all servers concurrently; block until they reply.

        A further call starts the servers that have exited; `revive` does so without pings.

        Raises:
            DataDirectoryBusy: Another service uses the directory.
            EmbeddedStartError: An installed server did not start, or the fleet is stopped
                meanwhile; all servers are stopped.
            RuntimeError: The fleet was stopped before.
        """
        with self._mutex:
            if self._abandoned.is_set():
                raise RuntimeError("this fleet was stopped, or its start failed; make another one")
            self._lock.acquire()
            atexit.register(self.stop)
            try:
                self._start_all()
            except BaseException:
                self.stop()
                raise
        return self

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(self._servers), "embedded-start") as threads:
            try:
                futures = [threads.submit(self._start_one, kind) for kind in self._servers]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._abandoned.set()  # before the pool waits for the others, which can be loading
                raise
        outcomes = [future.result() for future in futures]
        self.endpoints = {
            outcome.kind: outcome for outcome in outcomes if isinstance(outcome, Endpoint)
        }
        self.unavailable = tuple(
            outcome for outcome in outcomes if isinstance(outcome, ServerUnavailable)
        )

    def _start_one(self, kind: Kind) -> Endpoint | ServerUnavailable:
        with self._server_locks[kind]:
            try:
                return self._servers[kind].start(self._abandoned)
            except ServerUnavailable as error:
                return error

    def revive(self, kind: Kind) -> bool:
        """Restart a server if it has exited since the start; block until it replies.

        It is cheap while the server runs. Other threads can revive other servers meanwhile.

        Returns:
            Whether it had exited.

        Raises:
            ServerUnavailable: Its program was removed.
            EmbeddedStartError: It does not start, or the fleet is stopped meanwhile.
        """
        with self._server_locks[kind]:
            server = self._servers[kind]
            if kind not in self.endpoints or server.is_running:
                return False
            server.start(self._abandoned)
            return True

    def stop(self) -> None:
        """Stop all servers and release the directory; no error if none runs.

        A start in another thread is abandoned, whether it has begun or not.
        """
        self._abandoned.set()  # before the locks, which the starts hold
        with self._mutex:
            if not self._lock.is_held:
                return
            atexit.unregister(self.stop)
            self.endpoints, self.unavailable = {}, ()
            # In sequence, because an exiting interpreter starts no more threads; a failure does not
            # prevent the others from being stopped.
            with ExitStack() as cleanup:
                cleanup.callback(self._lock.release)
                for kind in self._servers:
                    cleanup.callback(self._stop_one, kind)

    def _stop_one(self, kind: Kind) -> None:
        with self._server_locks[kind]:
            self._servers[kind].stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def join(data_dir: Path) -> tuple[Endpoint, Endpoint]:
    """Return the running Redis and PostgreSQL of a data directory.

    Raises:
        EmbeddedStartError: They are not running.
    """
    redis = _running_endpoint(EmbeddedRedis(data_dir / "redis"), data_dir)
    return redis, _running_endpoint(EmbeddedPostgres(data_dir / "postgresql"), data_dir)


def _running_endpoint(server: OwnedServer, data_dir: Path) -> Endpoint:
    endpoint = server.running() if server.directory.exists() else None
    if endpoint is None:
        reason = f"nothing runs in {data_dir}; first start the service there: portolan serve"
        raise EmbeddedStartError(server.kind, f"{reason} --embedded --data-dir {data_dir}")
    return endpoint
