"""Directories that are closed to other users of the machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["PRIVATE_UMASK", "ForeignDirectory", "private_directory"]

PRIVATE_UMASK = 0o077
"""The umask of embedded servers: their files are for their own user."""

_OPEN_TO_OTHERS = 0o077


class ForeignDirectory(OSError):
    """A directory that should be private belongs to another user, or is no directory.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is not a directory of this user; remove it or use another")


def private_directory(directory: Path, *owners: int) -> Path:
    """Make sure that a directory exists and is closed to other users.

    Missing parents are created likewise; existing ones stay as they are.

    Args:
        directory: The directory.
        owners: Ids of users to whom it may belong besides us.

    Returns:
        The directory.

    Raises:
        ForeignDirectory: It exists and belongs to another user, or is a link.
    """
    if not directory.parent.exists():
        private_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), *owners):
        raise ForeignDirectory(directory)
    if status.st_mode & _OPEN_TO_OTHERS:
        directory.chmod(0o700)
    return directory
