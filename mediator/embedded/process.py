"""The process of a server, which a restarted service finds by its pid file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from mediator.embedded.account import Account, identity
from mediator.embedded.directories import PRIVATE_UMASK
from mediator.embedded.files import create_file, read_file

__all__ = ["Command", "ServerProcess", "wait_for"]

T = TypeVar("T")

_FIRST_PAUSE_S = 0.005
_MAX_PAUSE_S = 0.1


def wait_for(condition: Callable[[], T | None], within_s: float) -> T | None:
    """Poll a condition for its first truthy result; return None after `within_s` seconds.

    An error of the condition ends the wait.
    """
    deadline = time.monotonic() + within_s
    pause = _FIRST_PAUSE_S
    while True:
        if result := condition():
            return result
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, _MAX_PAUSE_S)


# The shell writes its process id and then executes the server under that id, so the file is never
# missing while the server runs.
_WRITE_PID_AND_EXEC = 'echo $$ > "$0" && exec "$@"'

_LOG_TAIL_BYTES = 4096
_PID_BYTES = 32
_COMMAND_BYTES = 2**17


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a server.

    Attributes:
        arguments: The program and its arguments; equal arguments mean an equal server.
        account: The account to run as; None: ours.
        environment: The complete environment of the server.
    """

    arguments: tuple[str, ...]
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.defpath})


class ServerProcess:
    """The only server process of a directory, in which its working directory lies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pid_file = directory / "server.pid"
        self._command_file = directory / "server.command"
        self._log_file = directory / "server.log"
        self._child: subprocess.Popen[bytes] | None = None

    def live(self) -> psutil.Process | None:
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        try:
            process = psutil.Process(int(read_file(self._pid_file, _PID_BYTES)))
            return process if self._is_ours(process) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def _is_ours(self, process: psutil.Process) -> bool:
        """Whether it is the server rather than another process that got the same id later."""
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()).is_relative_to(self.directory.resolve())

    def runs(self, command: Command) -> bool:
        """Whether the server was started with the same arguments."""
        with suppress(OSError, ValueError):
            arguments = json.loads(read_file(self._command_file, _COMMAND_BYTES))
            return bool(arguments == list(command.arguments))
        return False

    def spawn(self, command: Command) -> None:
        """Start the server in a new session, so that Ctrl-C reaches only us."""
        with suppress(FileNotFoundError):
            self._log_file.replace(self._log_file.with_suffix(".log.1"))
        with create_file(self._command_file) as file:
            file.write(json.dumps(command.arguments).encode())
        with create_file(self._log_file) as log:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", _WRITE_PID_AND_EXEC, self._pid_file, *command.arguments],
                cwd=self.directory,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=PRIVATE_UMASK,
                **identity(command.account),
            )

    def log_tail(self) -> str:
        try:
            tail = read_file(self._log_file, _LOG_TAIL_BYTES)
        except OSError:
            return ""
        return tail.decode("utf-8", "replace").strip()

    def stop(self, graceful: signal.Signals, within_s: float) -> None:
        if process := self.live():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(graceful)
                _wait_or_kill(process, within_s)
        if self._child is not None:  # reap it, or it would stay a zombie
            self._child.wait()
            self._child = None
        self._pid_file.unlink(missing_ok=True)


def _wait_or_kill(process: psutil.Process, within_s: float) -> None:
    try:
        process.wait(within_s)
    except psutil.TimeoutExpired:
        # It is the session leader, so this also kills children that it forked into its group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(within_s)
