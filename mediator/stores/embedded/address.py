"""Where a server listens: a Unix socket if its path is short enough, else a loopback port."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

__all__ = ["LOOPBACK", "fits_unix_socket", "kept_port", "kept_secret"]

LOOPBACK = "127.0.0.1"

# sockaddr_un holds 104 bytes on BSD and macOS and 108 on Linux, terminator included.
_LONGEST_SOCKET_PATH = 100


def fits_unix_socket(path: Path) -> bool:
    """Whether a socket can be bound at this path."""
    return len(bytes(path)) <= _LONGEST_SOCKET_PATH


def kept_port(directory: Path, *, in_use: bool) -> int:
    """A free loopback port: the one used last time in this directory, if it still is free.

    Args:
        directory: Where the number is remembered, in a file `port`.
        in_use: The directory's own server runs, so the remembered port is its port.

    Returns:
        The port. Somebody else may take it before the server does; the start then fails
        and says so.
    """
    remembered = directory / "port"
    last = int(remembered.read_text()) if remembered.exists() else 0
    if in_use and last:
        return last
    port = _free_port(last) or _free_port(0)
    remembered.write_text(str(port))
    return port


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def kept_secret(directory: Path) -> str:
    """The password of the server in this directory; made once, readable by its owner only."""
    file = directory / "password"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(24))
    return file.read_text()
