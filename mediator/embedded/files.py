"""Files of ours in directories that may belong to a less privileged account.

Whoever owns a directory can put anything there under any name, such as a link to a file of root's.
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
    """Open a new file to append to, in place of what is there; it is for its owner alone.

    Raises:
        OSError: It cannot be created.
    """
    path.unlink(missing_ok=True)
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_APPEND, 0o600))


def write_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, whatever crashes; it is for its owner alone.

    Raises:
        OSError: It cannot be written; what is there under its name stays.
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
    """Remove what a directory has under a name, if anything; not if the directory is a link.

    Raises:
        OSError: It is a directory, or it is in none.
    """
    directory = os.open(path.parent, _A_DIRECTORY)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)
    finally:
        os.close(directory)


def read_file(path: Path, most_bytes: int, owner: int | None = None) -> bytes:
    """Return the end of a file, and nothing else that may be there.

    Args:
        path: The file.
        most_bytes: How many bytes of it are returned.
        owner: The id of the user whose file it has to be; None: anybody's.

    Raises:
        OSError: There is none, it cannot be read, or it is somebody else's or no regular file.
    """
    # Without waiting: a pipe would keep us until somebody writes into it.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with open(path, "rb", opener=lambda name, reading: os.open(name, reading | flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or owner not in (None, status.st_uid):
            raise PermissionError(f"{path} is no file of this user")
        file.seek(max(0, status.st_size - most_bytes))
        return file.read(most_bytes)
