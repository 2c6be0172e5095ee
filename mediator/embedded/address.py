"""Paths of Unix domain sockets, in directories that are closed to other users."""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from pathlib import Path

__all__ = ["socket_path"]

# sockaddr_un holds 104 bytes on BSD and macOS and 108 on Linux, terminator included.
_LONGEST_SOCKET_PATH = 100


def socket_path(directory: Path, name: str) -> Path:
    """Return the path of the socket of a server; nothing is created.

    Args:
        directory: The server's directory.
        name: The name of the socket.

    Returns:
        A path in the directory; if that is too long for a socket, one in a directory for
        temporary files, whose name follows from the server's directory.
    """
    path = directory / name
    if len(bytes(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = blake2b(bytes(directory), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir(), f"portolan-{os.geteuid()}-{digest}", name)
