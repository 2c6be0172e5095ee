"""Files of ours in directories that can belong to a less privileged account.

The owner of a directory can put anything there under any name, such as a link to a file of root.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["create_file", "read_file", "remove_file", "write_file"]

_A_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def create_file(path: Path) -> BinaryIO:
    """Open a new file for appending, replacing any existing one; only its owner can read it.

    Raises:
        OSError: It cannot be created.
    """
    path.unlink(missing_ok=True)
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_APPEND, 0o600))


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, also across crashes; only its owner can read it.

    Raises:
        OSError: It cannot be written; an existing file stays.
    """
    draft = path.with_name(path.name + ".new")
    with create_file(draft) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, _A_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_file(path: Path) -> None:
    """Remove a file if it exists, but not through a link to its directory.

    Raises:
        OSError: It is a directory, or its parent is not a directory.
    """
    directory = os.open(path.parent, _A_DIRECTORY)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)
    finally:
        os.close(directory)


def read_file(path: Path, max_bytes: int, owner: int | None = None) -> bytes:
    """Return the end of a regular file.

    Args:
        path: The file.
        max_bytes: Maximum number of bytes to return.
        owner: The id of the user who must own the file; None: anybody.

    Raises:
        OSError: It is absent or cannot be read, another user owns it, or it is not a regular file.
    """
    # Non-blocking: opening a pipe would wait until somebody writes into it.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with open(
        path, "rb", opener=lambda name, open_flags: os.open(name, open_flags | flags)
    ) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or owner not in (None, status.st_uid):
            raise PermissionError(f"{path} is not a regular file of this user")
        file.seek(max(0, status.st_size - max_bytes))
        return file.read(max_bytes)
