"""Finds a directory for an unprivileged server that cannot enter the data directory."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

from mediator.embedded.account import Account, can_enter, chown_tree
from mediator.embedded.port import EmbeddedStartError, Kind

__all__ = ["accessible_directory"]

_FALLBACK = Path("/var/lib/portolan")
_POINTER = "elsewhere"


def accessible_directory(directory: Path, account: Account | None, kind: Kind) -> Path:
    """Return a directory that the account owns and can enter.

    The data directory itself is made traversable if need be; its parents are not ours, and
    where they are closed (as the home of root is) the files go below `/var/lib/portolan`, and
    a file `elsewhere` in the directory says where.

    Args:
        directory: Where the files should be: a directory inside the data directory.
        account: The unprivileged account; None means that we run servers as ourselves.
        kind: The database, for messages.

    Returns:
        `directory`, or its stand-in, existing and private to the account.

    Raises:
        EmbeddedStartError: The account can enter neither directory.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if account is None:
        return directory
    pointer = directory / _POINTER
    if not pointer.exists():
        if _is_given_to(directory, account):
            return directory
        # A name that only this directory knows: a later directory on the same path starts empty.
        pointer.write_text(str(_FALLBACK / f"{directory.name}-{secrets.token_hex(8)}"))
    stand_in = Path(pointer.read_text())
    if _is_given_to(stand_in, account):
        return stand_in
    reason = f"the account {account.name} can reach neither {directory} nor {stand_in}"
    raise EmbeddedStartError(kind, reason)


def _is_given_to(directory: Path, account: Account) -> bool:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != account.uid:
        chown_tree(directory, account)
    if not can_enter(directory, account):
        _allow_passing(directory.parent)
    return can_enter(directory, account)


def _allow_passing(directory: Path) -> None:
    """Let others pass through a directory; they still cannot list or read what is in it."""
    directory.chmod(stat.S_IMODE(directory.stat().st_mode) | stat.S_IXOTH)
