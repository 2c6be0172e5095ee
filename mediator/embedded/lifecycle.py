"""Lifecycle of an embedded server: started, adopted, stopped."""

from __future__ import annotations

import signal
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from mediator.embedded.directories import ForeignDirectory, private_directory, socket_path
from mediator.embedded.port import (
    Durability,
    EmbeddedServer,
    EmbeddedStartError,
    Endpoint,
    ServerUnavailable,
)
from mediator.embedded.process import Command, ServerProcess, wait_for

__all__ = ["OwnedServer"]

_STOP_WITHIN_S = 30.0


class OwnedServer(EmbeddedServer):
    """A server in one directory, for data, log and socket; the first start creates it."""

    socket_name: ClassVar[str]
    start_within_s: ClassVar[float] = 60.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        self._process = ServerProcess(directory.resolve())
        self._durability = durability

    @property
    def directory(self) -> Path:
        return self._process.directory

    @property
    def _socket(self) -> Path:
        """The only address of the server: its directory keeps other users out."""
        return socket_path(self.directory, self.socket_name)

    @property
    def is_running(self) -> bool:
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
        # A killed server leaves its socket, to which the next one could not bind.
        self._socket.unlink(missing_ok=True)

    def _close_directories(self, *owners: int) -> None:
        try:
            for directory in {self.directory, self._socket.parent}:
                private_directory(directory, *owners)
        except ForeignDirectory as error:
            raise EmbeddedStartError(self.kind, str(error)) from None

    @abstractmethod
    def _ping(self, command: Command) -> Endpoint | None:
        """Return None while the server does not reply, or if it is not the expected one."""

    def start(self) -> Endpoint:
        try:
            command = self._command()
        except ServerUnavailable:
            self.stop()
            raise
        # One of a killed service is adopted only if it was started with the same settings.
        if self.is_running and self._process.runs(command):
            adopted = self._wait_for_reply(command)
            if adopted:
                return adopted
        return self._launch(command)

    def running(self) -> Endpoint | None:
        """Return the server if it runs and replies, whatever it was started with; else None.

        Raises:
            ServerUnavailable: A program is missing on this machine.
        """
        expected = self._command()  # it also sets the directory of the files
        return self._ping(self._process.command() or expected) if self.is_running else None

    def _launch(self, command: Command) -> Endpoint:
        self.stop()
        self._prepare()
        self._process.spawn(command)
        if endpoint := self._wait_for_reply(command):
            return endpoint
        silent = f"did not reply within {self.start_within_s:.0f} s"
        reason = silent if self.is_running else "ended before it replied"
        self.stop()
        raise EmbeddedStartError(self.kind, f"the server {reason}", self._process.log_tail())

    def _wait_for_reply(self, command: Command) -> Endpoint | None:
        outcome = wait_for(lambda: self._ping(command) or not self.is_running, self.start_within_s)
        return outcome if isinstance(outcome, Endpoint) else None

    def stop(self) -> None:
        self._process.stop(self.stop_signal, _STOP_WITHIN_S)
