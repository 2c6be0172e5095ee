"""Files that appear whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

__all__ = ["atomic_file", "flush_directory"]


@contextmanager
def atomic_file(target: Path) -> Iterator[BinaryIO]:
    """Write a file; a former version stays until all of the new one is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            yield file
            # On the disk before it has the name: else a crash of the machine may leave an empty
            # file.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def flush_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk: else a crash of the machine may undo some."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
