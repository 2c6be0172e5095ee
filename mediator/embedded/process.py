"""The process of a server, found again after we ourselves were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mediator.embedded.account import Account
from mediator.embedded.private import PRIVATE_UMASK

__all__ = ["Command", "ServerProcess"]

# The shell writes its own number and becomes the server under that number: there is no moment
# at which the server runs and the file is missing.
_WRITE_PID_AND_BECOME = 'echo $$ > "$0" && exec "$@"'

_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Command:
    """How to run a server.

    Attributes:
        arguments: The program and its arguments; they say all that matters, so that equal
            arguments mean an equal server.
        account: Whom to run as; None for ourselves.
        environment: The whole environment of the server.
    """

    arguments: tuple[str, ...]
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.defpath})


class ServerProcess:
    """At most one server process that lives in a directory.

    Args:
        directory: The directory; the server's working directory is in it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pid_file = directory / "server.pid"
        self._command_file = directory / "server.command"
        self._log_file = directory / "server.log"
        self._child: subprocess.Popen[bytes] | None = None

    def living(self) -> psutil.Process | None:
        """The living server of this directory, whoever started it."""
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        try:
            process = psutil.Process(int(self._pid_file.read_text()))
            return process if self._is_ours(process) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def _is_ours(self, process: psutil.Process) -> bool:
        """Tell our server from a stranger who was given the same number later."""
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()).is_relative_to(self.directory.resolve())

    def runs(self, command: Command) -> bool:
        """Whether the server was started with exactly this command."""
        started = self.command()
        return started is not None and started.arguments == command.arguments

    def command(self) -> Command | None:
        """What the server was started with, without account and environment; None if unknown."""
        with suppress(OSError, ValueError):
            return Command(tuple(json.loads(self._command_file.read_text())))
        return None

    def spawn(self, command: Command) -> None:
        """Start the server in a session of its own, so that Ctrl-C reaches us and not it."""
        self._keep_last_log()
        self._command_file.write_text(json.dumps(command.arguments))
        account = command.account
        with self._log_file.open("ab") as log:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", _WRITE_PID_AND_BECOME, self._pid_file, *command.arguments],
                cwd=self.directory,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=PRIVATE_UMASK,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )

    def _keep_last_log(self) -> None:
        if self._log_file.exists():
            self._log_file.replace(self._log_file.with_suffix(".log.1"))

    def log_tail(self) -> str:
        """The end of the server's log."""
        if not self._log_file.exists():
            return ""
        return self._log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def stop(self, graceful: signal.Signals, within_s: float) -> None:
        """End the server: politely, and after a time by force.

        Args:
            graceful: The signal that asks the server to finish its work and leave.
            within_s: How long to wait for that, in seconds.
        """
        if process := self.living():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(graceful)
                self._wait_or_kill(process, within_s)
        self._reap()
        self._pid_file.unlink(missing_ok=True)

    def _wait_or_kill(self, process: psutil.Process, within_s: float) -> None:
        try:
            process.wait(within_s)
        except psutil.TimeoutExpired:
            # Session leader, so this reaches children that the server forked into its group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(within_s)

    def _reap(self) -> None:
        """Collect our child, so that neither a zombie nor an unfinished handle is left."""
        if self._child is not None:
            self._child.wait()
            self._child = None
