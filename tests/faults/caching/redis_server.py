"""A Redis of one test, which can be killed, frozen or restarted with an older file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from mediator.embedded.redis import EmbeddedRedis

__all__ = ["Server", "running"]


class Server:
    """A Redis that only the test stops or kills."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._embedded = EmbeddedRedis(directory)
        self.url = ""

    def start(self) -> None:
        self.url = self._embedded.start().url

    def stop(self) -> None:
        self._embedded.stop()

    def kill(self) -> None:
        """End the server as a crash would."""
        process = self._process()
        process.kill()
        process.wait(30.0)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Freeze the server while the block runs: it accepts requests but does not answer."""
        process = self._process()
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def _process(self) -> psutil.Process:
        (file,) = self.directory.rglob("server.pid")
        return psutil.Process(int(file.read_text().split()[0]))

    @property
    def log(self) -> Path:
        """The append-only file since its last rewrite."""
        (file,) = self.directory.rglob("appendonly.aof.*.incr.aof")
        return file


@contextmanager
def running(purpose: str) -> Iterator[Server]:
    """Run a server while the block runs, in its own directory named for its purpose."""
    directory = Path(tempfile.mkdtemp(prefix=f"portolan-{purpose}-"))
    server = Server(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
