"""Atomic file writes."""

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
    """Write a file; the old version stays until all of the new one is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            yield file
            # To the disk before the renaming: otherwise a crash of the machine can leave an empty
            # file.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def flush_directory(directory: Path) -> None:
    """Flush a directory's entries to the disk, so that a crash of the machine undoes none."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
