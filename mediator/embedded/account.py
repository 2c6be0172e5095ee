"""The unprivileged account for servers that refuse to run as root (PostgreSQL does).

Such a server may not be able to enter the data directory, and gets another one then.
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

_OWN_ACCOUNT = "portolan"
_WITHIN_S = 30
_FALLBACK = Path("/var/lib/portolan")
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int


def identity(account: Account | None) -> dict[str, Any]:
    """Return the arguments by which `subprocess` runs a program as an account; None: as us."""
    if account is None:
        return {}
    # Without `extra_groups` the program would keep the groups of root.
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def unprivileged_account(directory: Path) -> Account | None:
    """Return the account that a server should run as; None: we are not root, and run it ourselves.

    The owner of an existing directory has precedence, so that a restart can read its files.
    """
    if os.geteuid() != 0:
        return None
    owner = _account(directory.stat().st_uid) if directory.exists() else None
    usual = owner or _account(_OWN_ACCOUNT) or _account("postgres")
    return usual or _created() or _account("nobody")


def _account(user: str | int) -> Account | None:
    """Return the account of a name or a number; None if there is none, or it is root's."""
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _created() -> Account | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return None
    command = [useradd, "--system", "--no-create-home", "--shell", "/bin/false", _OWN_ACCOUNT]
    subprocess.run(command, check=False, capture_output=True, timeout=_WITHIN_S)
    return _account(_OWN_ACCOUNT)


def _can_enter(directory: Path, account: Account) -> bool:
    """Whether the account can enter a directory; the kernel decides, so ACLs count too."""
    command = ["/bin/sh", "-c", 'cd -- "$0"', str(directory)]
    done = subprocess.run(
        command, check=False, capture_output=True, cwd="/", timeout=_WITHIN_S, **identity(account)
    )
    return done.returncode == 0


def chown_tree(directory: Path, account: Account) -> None:
    """Give a directory and what is in it to an account; a link to a directory is left alone."""
    # By descriptors: by their paths, the new owner could put links there amid the walk.
    for _, directories, files, descriptor in os.fwalk(directory):
        os.chown(descriptor, account.uid, account.gid)
        for name in (*directories, *files):
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)


def accessible_directory(directory: Path, account: Account | None, kind: Kind) -> Path:
    """Return a directory that the account owns and can enter: `directory`, or its stand-in.

    The data directory itself is made traversable if need be. Its parents are not ours: where they
    are closed (as the home of root is), the files are below `/var/lib/portolan`, and a file
    `elsewhere` in the directory names the stand-in.

    Raises:
        EmbeddedStartError: The account can enter neither directory, or `elsewhere` is not ours or
            cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if account is None:
        return directory
    pointer = directory / "elsewhere"
    if not os.path.lexists(pointer):
        if _is_given_to(directory, account):
            return directory
        # A name that only this directory knows: a later directory on the same path starts empty.
        named = _FALLBACK / f"{directory.name}-{secrets.token_hex(8)}"
        try:
            write_file(pointer, bytes(named))
        except OSError as error:
            raise EmbeddedStartError(kind, f"{pointer} cannot be written: {error}") from None
    stand_in = _stand_in(pointer, kind)
    if _is_given_to(stand_in, account):
        return stand_in
    reason = f"the account {account.name} can reach neither {directory} nor {stand_in}"
    raise EmbeddedStartError(kind, reason)


def _stand_in(pointer: Path, kind: Kind) -> Path:
    """Return the directory that a pointer names, which the account could have replaced."""
    own_name = rf"{re.escape(pointer.parent.name)}-[0-9a-f]{{16}}"
    try:
        named = Path(os.fsdecode(read_file(pointer, _LONGEST_PATH, os.geteuid())))
    except OSError:
        named = Path()
    if named.parent == _FALLBACK and re.fullmatch(own_name, named.name):
        return named
    reason = f"{pointer} was not written by this service: it has to be a file of its user"
    raise EmbeddedStartError(kind, f"{reason} and to name a directory of its own in {_FALLBACK}")


def _is_given_to(directory: Path, account: Account) -> bool:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != account.uid:
        chown_tree(directory, account)
    if not _can_enter(directory, account):
        # Others may pass through the parent then, but still not list or read what is in it.
        directory.parent.chmod(stat.S_IMODE(directory.parent.stat().st_mode) | stat.S_IXOTH)
    return _can_enter(directory, account)
