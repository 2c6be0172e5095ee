"""Processes of embedded stores, to be killed and stopped while they work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import Kind
from mediator.stores.port import SystemConfig
from tests.java import QUICK_JAVA

__all__ = ["KINDS", "RestartableStores", "Stores"]

KINDS: dict[str, Kind] = {"redis": "redis", "postgres": "postgresql", "mongo": "mongodb"}
"""The kind of each system."""

KILL_TIMEOUT_S = 30.0


class Stores:
    """The embedded stores of a data directory, whichever process started them.

    Args:
        data_dir: The directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def kill(self, system: str) -> None:
        """Kill all processes of a store as a crash would; return once they are gone."""
        processes = self._send(system, signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, KILL_TIMEOUT_S)
        assert not alive

    def end(self) -> None:
        """Kill the stores that a service left when its restart failed."""
        for system, kind in KINDS.items():
            if list((self._data_dir / kind).rglob("server.pid")):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.kill(system)

    @contextlib.contextmanager
    def silent(self, system: str) -> Iterator[None]:
        """Freeze a store while the block runs: it accepts connections but does not answer."""
        self._send(system, signal.SIGSTOP)
        try:
            yield
        finally:
            self._send(system, signal.SIGCONT)

    def _send(self, system: str, number: signal.Signals) -> list[psutil.Process]:
        processes = self._processes(system)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return processes

    def _processes(self, system: str) -> list[psutil.Process]:
        [file] = (self._data_dir / KINDS[system]).rglob("server.pid")
        server = psutil.Process(int(file.read_text()))
        return [server, *server.children(recursive=True)]


class RestartableStores(Stores):
    """Stores that only the test starts and restarts."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._fleet = EmbeddedFleet(data_dir, "full", QUICK_JAVA)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the stores while the block runs."""
        with self._fleet:
            yield

    def configs(self) -> list[SystemConfig]:
        """Return the config of each store."""
        endpoints = self._fleet.endpoints
        return [
            SystemConfig(name, kind, endpoints[kind].url, durability="full")
            for name, kind in KINDS.items()
        ]

    @contextlib.contextmanager
    def killed(self, system: str) -> Iterator[None]:
        """Kill a store; restart it at the end of the block."""
        self.kill(system)
        try:
            yield
        finally:
            assert self._fleet.revive(KINDS[system])
