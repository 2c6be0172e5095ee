"""The embedded servers of one service, started and stopped together; or joined as they run."""

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
    exits, so a service has to turn SIGTERM into an exit and nothing more. Servers that outlive a
    killed service are adopted by the next fleet on the same directory.

    A fleet that was stopped is not started again, whichever of the two came first: another thread
    may stop it before its start has begun. Make another one.

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
        servers: tuple[EmbeddedServer, ...] = (
            EmbeddedRedis(data_dir / "redis", durability),
            EmbeddedPostgres(data_dir / "postgresql", durability),
            EmbeddedMongo(data_dir / "mongodb", durability, java_options),
        )
        self._servers: Mapping[Kind, EmbeddedServer] = {each.kind: each for each in servers}
        # One each, as one of them may load its data for hours while another has to be restarted.
        self._server_locks = {kind: threading.RLock() for kind in self._servers}
        self.endpoints: Mapping[Kind, Endpoint] = {}
        self.unavailable: tuple[ServerUnavailable, ...] = ()

    def start(self) -> Self:
        """Start, adopt or revive every server, at the same time; block until they reply.

        A further call starts the servers that have exited; `revive` does so without pings.

        Raises:
            DataDirectoryBusy: Another service uses the directory.
            EmbeddedStartError: A server is installed and did not come up, or the fleet is stopped
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
                starts = [threads.submit(self._start_one, kind) for kind in self._servers]
                for start in as_completed(starts):
                    start.result()
            except BaseException:
                self._abandoned.set()  # before the pool waits for the others, which may load
                raise
        outcomes = [start.result() for start in starts]
        self.endpoints = {each.kind: each for each in outcomes if isinstance(each, Endpoint)}
        self.unavailable = tuple(each for each in outcomes if isinstance(each, ServerUnavailable))

    def _start_one(self, kind: Kind) -> Endpoint | ServerUnavailable:
        with self._server_locks[kind]:
            try:
                return self._servers[kind].start(self._abandoned)
            except ServerUnavailable as missing:
                return missing

    def revive(self, kind: Kind) -> bool:
        """Restart a server if it has exited since the start; block until it replies.

        It costs next to nothing while the server runs. Meanwhile other threads can revive others.

        Returns:
            Whether it had exited.

        Raises:
            ServerUnavailable: Its program is no longer there.
            EmbeddedStartError: It does not come up, or the fleet is stopped meanwhile.
        """
        with self._server_locks[kind]:
            server = self._servers[kind]
            if kind not in self.endpoints or server.is_running:
                return False
            server.start(self._abandoned)
            return True

    def stop(self) -> None:
        """Stop every server and release the directory; harmless when nothing runs.

        A start that is under way in another thread is abandoned, and so is one that has not begun.
        """
        self._abandoned.set()  # before the locks, which the starts hold
        with self._mutex:
            if not self._lock.is_held:
                return
            atexit.unregister(self.stop)
            self.endpoints, self.unavailable = {}, ()
            # In sequence, as an interpreter that is exiting starts no more threads; one that fails
            # does not keep the others from being stopped.
            with ExitStack() as rest:
                rest.callback(self._lock.release)
                for kind in self._servers:
                    rest.callback(self._stop_one, kind)

    def _stop_one(self, kind: Kind) -> None:
        with self._server_locks[kind]:
            self._servers[kind].stop()

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
