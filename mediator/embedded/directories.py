"""Directories of embedded servers: private, locked, and with short enough paths for sockets."""

from __future__ import annotations

import fcntl
import os
import tempfile
from hashlib import blake2b
from pathlib import Path

__all__ = [
    "PRIVATE_UMASK",
    "DataDirectoryBusy",
    "DataDirectoryLock",
    "ForeignDirectory",
    "private_directory",
    "socket_path",
]

PRIVATE_UMASK = 0o077
"""The umask of embedded servers: only their user can read their files."""

_OPEN_TO_OTHERS = 0o077


class ForeignDirectory(OSError):
    """A directory that should be private belongs to another user, or is not a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is not a directory of this user; remove it or use another")


def private_directory(directory: Path, *owners: int) -> Path:
    """Ensure that a directory exists and is closed to other users.

    Missing parents are created likewise; existing ones stay unchanged. It must belong to us, or to
    one of the `owners` (ids of users).

    Raises:
        ForeignDirectory: It exists and belongs to another user, or is a link.
    """
    if not directory.parent.exists():
        private_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    # By a descriptor: in a shared temporary directory, another user can insert a link.
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise ForeignDirectory(directory) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (os.geteuid(), *owners):
            raise ForeignDirectory(directory)
        if status.st_mode & _OPEN_TO_OTHERS:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return directory


# sockaddr_un has 104 bytes on BSD and macOS and 108 on Linux, including the terminator.
_MAX_SOCKET_PATH = 100


def socket_path(directory: Path, name: str) -> Path:
    """Return the path of a server's socket, in the server's directory; nothing is created.

    If that is too long for a socket or has a comma, the socket is in a directory for temporary
    files, whose name is derived from the server's directory.
    """
    path = directory / name
    # A comma separates addresses in settings of servers and in URLs.
    if len(bytes(path)) <= _MAX_SOCKET_PATH and "," not in str(path):
        return path
    digest = blake2b(bytes(directory), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir(), f"portolan-{os.geteuid()}-{digest}", name)


class DataDirectoryBusy(Exception):
    """Another service uses the data directory: the process whose id is in the lock, if known."""

    def __init__(self, directory: Path, holder: str) -> None:
        by = f" (process {holder})" if holder else ""
        super().__init__(f"another service{by} is using {directory}; stop it or use another one")


class DataDirectoryLock:
    """An exclusive lock on a data directory, released when its process ends for any reason."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Acquire the lock, unless this object holds it already.

        Raises:
            DataDirectoryBusy: Another process holds it.
        """
        if self._descriptor is not None:
            return
        if not self._directory.exists():
            private_directory(self._directory)
        # The descriptor is not inheritable, so servers started by us do not keep the lock.
        descriptor = os.open(self._directory / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DataDirectoryBusy(self._directory, holder) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
