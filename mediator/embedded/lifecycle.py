"""Lifecycle of an embedded server: started, adopted, stopped."""

from __future__ import annotations

import logging
import signal
import threading
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from mediator.embedded.directories import ForeignDirectory, private_directory, socket_path
from mediator.embedded.port import (
    NEVER,
    Durability,
    EmbeddedServer,
    EmbeddedStartError,
    Endpoint,
    ServerUnavailable,
)
from mediator.embedded.process import Command, ServerProcess, wait_for

__all__ = ["OwnedServer", "Reply"]

log = logging.getLogger(__name__)

Reply: TypeAlias = Endpoint | Literal["loading"] | None
"""The reply to a ping. `loading`: the server reports that it is still reading its data. None: it
does not reply, or is another server.
"""

_STOP_WITHIN_S = 30.0


class OwnedServer(EmbeddedServer):
    """A server in one directory, for data, log and socket; the first start creates it.

    Attributes:
        start_within_s: Timeout of a start without a reply, in seconds. Time while it reports that
            it is loading does not count: a restart would begin loading from the start.
        loading_logged_every_s: Interval of messages that it is loading, in seconds.
    """

    socket_name: ClassVar[str]
    start_within_s: ClassVar[float] = 60.0
    loading_logged_every_s: ClassVar[float] = 10.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        self._process = ServerProcess(directory.resolve())
        self._durability = durability

    @property
    def directory(self) -> Path:
        return self._process.directory

    @property
    def _socket(self) -> Path:
        """The only address of the server; its directory is closed to other users."""
        return socket_path(self.directory, self.socket_name)

    @property
    def is_running(self) -> bool:
        return self._process.live() is not None

    @abstractmethod
    def _command(self) -> Command:
        """Return the command that runs the server.

        Raises:
            ServerUnavailable: A program is missing.
        """

    def _prepare(self) -> None:
        """Prepare the directory for a start; no server is running in it."""
        self._close_directories()
        # A killed server leaves its socket, and the next one could not bind to it.
        self._socket.unlink(missing_ok=True)

    def _close_directories(self, *owners: int) -> None:
        if "," in str(self._socket):
            reason = f"sockets cannot be in {self._socket.parent}, as its path has a comma"
            raise EmbeddedStartError(self.kind, f"{reason}; set TMPDIR to another directory")
        try:
            for directory in {self.directory, self._socket.parent}:
                private_directory(directory, *owners)
        except ForeignDirectory as error:
            raise EmbeddedStartError(self.kind, str(error)) from None

    @abstractmethod
    def _ping(self, command: Command) -> Reply: ...

    def start(self, abandoned: threading.Event = NEVER) -> Endpoint:
        try:
            command = self._command()
        except ServerUnavailable:
            self.stop()
            raise
        # A killed service's server is adopted only if it was started with the same settings.
        if self.is_running and self._process.runs(command):
            endpoint = self._wait_for_reply(command, abandoned)
            if endpoint:
                return endpoint
        return self._launch(command, abandoned)

    def running(self) -> Endpoint | None:
        """Return the server if it runs and replies, with any settings; else None.

        Raises:
            ServerUnavailable: A program is missing on this machine.
        """
        command = self._command()  # it also sets the directory of the files
        reply = self._ping(command) if self.is_running else None
        return reply if isinstance(reply, Endpoint) else None

    def _launch(self, command: Command, abandoned: threading.Event) -> Endpoint:
        self.stop()
        if not abandoned.is_set():
            self._prepare()
        if not abandoned.is_set():  # creating a cluster takes a while
            self._process.spawn(command)
        if endpoint := self._wait_for_reply(command, abandoned):
            return endpoint
        timeout_reason = f"did not reply within {self.start_within_s:.0f} s"
        reason = timeout_reason if self.is_running else "ended before it replied"
        self.stop()
        if abandoned.is_set():
            raise EmbeddedStartError(self.kind, "its start was abandoned")
        raise EmbeddedStartError(self.kind, f"the server {reason}", self._process.log_tail())

    def _wait_for_reply(self, command: Command, abandoned: threading.Event) -> Endpoint | None:
        def reply() -> Endpoint | Literal["loading", True] | None:
            if abandoned.is_set():
                return True
            return self._ping(command) or (None if self.is_running else True)

        while (outcome := wait_for(reply, self.start_within_s)) == "loading":
            if not wait_for(lambda: reply() != "loading", self.loading_logged_every_s):
                log.warning("The embedded %s server is still loading its data.", self.kind)
        return outcome if isinstance(outcome, Endpoint) else None

    def stop(self) -> None:
        self._process.stop(self.stop_signal, _STOP_WITHIN_S)
