"""A lock that admits one service to a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from mediator.embedded.private import private_directory

__all__ = ["DataDirectoryBusy", "DataDirectoryLock"]


class DataDirectoryBusy(Exception):
    """Another service uses the data directory.

    Args:
        directory: The directory.
        holder: The process number that the other service left in the lock, or "".
    """

    def __init__(self, directory: Path, holder: str) -> None:
        by = f" (process {holder})" if holder else ""
        super().__init__(f"another service{by} is using {directory}; stop it or use another one")
        self.directory = directory
        self.holder = holder


class DataDirectoryLock:
    """An exclusive lock that is released when its process ends, in any way.

    Args:
        directory: The data directory; created when it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether we hold the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock; doing so twice is harmless.

        Raises:
            DataDirectoryBusy: Another process holds it.
        """
        if self._descriptor is not None:
            return
        if not self._directory.exists():
            private_directory(self._directory)
        # The descriptor is not inheritable, so the servers that we start do not keep the lock.
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
        """Release the lock; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
