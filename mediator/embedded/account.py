"""The unprivileged account for servers that refuse to run as root, like PostgreSQL.

If such a server cannot enter the data directory, it gets another one.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mediator.embedded.files import read_file, write_file
from mediator.embedded.port import EmbeddedStartError, Kind

__all__ = ["Account", "accessible_directory", "chown_tree", "identity", "unprivileged_account"]

_ACCOUNT = "portolan"
_TIMEOUT_S = 30
_FALLBACK = Path("/var/lib/portolan")
_MAX_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int


def identity(account: Account | None) -> dict[str, Any]:
    """Return the `subprocess` arguments to run a program as an account; None: as our user."""
    if account is None:
        return {}
    # Without `extra_groups` the program would keep the groups of root.
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def unprivileged_account(directory: Path) -> Account | None:
    """Return the account to run a server as; None: we are not root, and run it as our user.

    The owner of an existing directory has precedence, so that a restart can read its files.
    """
    if os.geteuid() != 0:
        return None
    owner = _account(directory.stat().st_uid) if directory.exists() else None
    existing = owner or _account(_ACCOUNT) or _account("postgres")
    return existing or _create_account() or _account("nobody")


def _account(user: str | int) -> Account | None:
    """Return the account with a name or a number; None if there is none, or it is root."""
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _create_account() -> Account | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return None
    command = [useradd, "--system", "--no-create-home", "--shell", "/bin/false", _ACCOUNT]
    subprocess.run(command, check=False, capture_output=True, timeout=_TIMEOUT_S)
    return _account(_ACCOUNT)


def _can_enter(directory: Path, account: Account) -> bool:
    """Whether the account can enter a directory; the kernel decides, including ACLs."""
    command = ["/bin/sh", "-c", 'cd -- "$0"', str(directory)]
    result = subprocess.run(
        command, check=False, capture_output=True, cwd="/", timeout=_TIMEOUT_S, **identity(account)
    )
    return result.returncode == 0


def chown_tree(directory: Path, account: Account) -> None:
    """Change the owner of a directory and its contents; links to directories are not followed."""
    # By descriptors: with paths, the new owner could insert links during the walk.
    for _, directories, files, descriptor in os.fwalk(directory):
        os.chown(descriptor, account.uid, account.gid)
        for name in (*directories, *files):
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)


def accessible_directory(directory: Path, account: Account | None, kind: Kind) -> Path:
    """Return a directory that the account owns and can enter: `directory`, or its stand-in.

    The data directory itself is made traversable if needed. Its parents are not ours: if they are
    closed (like root's home), the files are below `/var/lib/portolan`, and a file `elsewhere` in
    the directory names the stand-in.

    Raises:
        EmbeddedStartError: The account can enter neither directory, or `elsewhere` is not ours or
            cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if account is None:
        return directory
    pointer = directory / "elsewhere"
    if not os.path.lexists(pointer):
        if _make_accessible(directory, account):
            return directory
        # A unique name: a later directory on the same path starts empty.
        stand_in_path = _FALLBACK / f"{directory.name}-{secrets.token_hex(8)}"
        try:
            write_file(pointer, bytes(stand_in_path))
        except OSError as error:
            raise EmbeddedStartError(kind, f"{pointer} cannot be written: {error}") from None
    stand_in = _stand_in(pointer, kind)
    if _make_accessible(stand_in, account):
        return stand_in
    reason = f"the account {account.name} can reach neither {directory} nor {stand_in}"
    raise EmbeddedStartError(kind, reason)


def _stand_in(pointer: Path, kind: Kind) -> Path:
    """Return the directory that a pointer names; the account could have replaced the pointer."""
    expected_name = rf"{re.escape(pointer.parent.name)}-[0-9a-f]{{16}}"
    try:
        target = Path(os.fsdecode(read_file(pointer, _MAX_PATH_BYTES, os.geteuid())))
    except OSError:
        target = Path()
    if target.parent == _FALLBACK and re.fullmatch(expected_name, target.name):
        return target
    reason = f"{pointer} was not written by this service: it has to be a file of its user"
    raise EmbeddedStartError(kind, f"{reason} and to name a directory of its own in {_FALLBACK}")


def _make_accessible(directory: Path, account: Account) -> bool:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != account.uid:
        chown_tree(directory, account)
    if not _can_enter(directory, account):
        # Others can then traverse the parent, but still not list or read its contents.
        directory.parent.chmod(stat.S_IMODE(directory.parent.stat().st_mode) | stat.S_IXOTH)
    return _can_enter(directory, account)
