"""Life cycle of an embedded server: started, adopted, stopped."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from mediator.embedded.directories import ForeignDirectory, private_directory, socket_path
from mediator.embedded.port import (
    EmbeddedStartError,
    Endpoint,
    Kind,
    ServerUnavailable,
)
from mediator.embedded.process import Command, ServerProcess, wait_for

__all__ = ["OwnedServer"]


class OwnedServer(ABC):
    """A server in one directory; subclasses say how to run and how to ping it.

    Args:
        directory: The directory; created on the first start.
    """

    kind: ClassVar[Kind]
    socket_name: ClassVar[str]
    start_within_s: ClassVar[float] = 60.0
    stop_within_s: ClassVar[float] = 30.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        self._process = ServerProcess(directory.resolve())

    @property
    def directory(self) -> Path:
        """Where the server keeps its data, its log and its socket."""
        return self._process.directory

    @property
    def _socket(self) -> Path:
        """The only address of the server: its directory keeps other users out."""
        return socket_path(self.directory, self.socket_name)

    @property
    def is_running(self) -> bool:
        """Whether the process of the server runs, whichever process started it."""
        return self._process.live() is not None

    @abstractmethod
    def _command(self) -> Command:
        """How to run the server.

        Raises:
            ServerUnavailable: A program is missing.
        """

    def _prepare(self) -> None:
        """Make the directory ready for a start; no server is running in it."""
        self._close_directories()
        self._socket.unlink(missing_ok=True)

    def _close_directories(self, *owners: int) -> None:
        """Close the server's directory, and that of its socket, to other users."""
        try:
            for directory in {self.directory, self._socket.parent}:
                private_directory(directory, *owners)
        except ForeignDirectory as error:
            raise EmbeddedStartError(self.kind, str(error)) from None

    @abstractmethod
    def _ping(self, command: Command) -> Endpoint | None:
        """Ping the server; None while it does not reply, or if it is not the expected one."""

    def start(self) -> Endpoint:
        """Start the server, or adopt it if it still runs; block until it replies.

        Returns:
            Where it listens and what it is.

        Raises:
            ServerUnavailable: A program is missing on this machine.
            EmbeddedStartError: The server did not come up; holds the end of its log.
        """
        try:
            command = self._command()
        except ServerUnavailable:
            self.stop()
            raise
        return self._adopted(command) or self._launched(command)

    def running(self) -> Endpoint | None:
        """Return the server if it runs and replies, whatever it was started with; else None.

        Raises:
            ServerUnavailable: A program is missing on this machine.
        """
        expected = self._command()  # it also sets the directory of the files
        return self._ping(self._process.command() or expected) if self.is_running else None

    def _adopted(self, command: Command) -> Endpoint | None:
        """Return the server of a former service, if its command is the one we would run now."""
        if self.is_running and self._process.runs(command):
            return self._wait_for_reply(command)
        return None

    def _launched(self, command: Command) -> Endpoint:
        self.stop()
        self._prepare()
        self._process.spawn(command)
        if endpoint := self._wait_for_reply(command):
            return endpoint
        reason = self._no_reply() if self.is_running else "ended before it replied"
        self.stop()
        raise EmbeddedStartError(self.kind, f"the server {reason}", self._process.log_tail())

    def _no_reply(self) -> str:
        return f"did not reply within {self.start_within_s:.0f} s"

    def _wait_for_reply(self, command: Command) -> Endpoint | None:
        """Ping until the server replies, or has exited, or the time is up."""
        outcome = wait_for(lambda: self._ping(command) or not self.is_running, self.start_within_s)
        return outcome if isinstance(outcome, Endpoint) else None

    def stop(self) -> None:
        """Stop the server, adopted or not, and wait until it is gone."""
        self._process.stop(self.stop_signal, self.stop_within_s)

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
