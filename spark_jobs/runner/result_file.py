"""Writes a result to a file atomically, in the format that its suffix names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

from spark_jobs.runner.results import ResultFormat

__all__ = ["FORMATS", "write_atomically"]

FORMATS: Final[dict[str, ResultFormat]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""Formats by suffix."""


def write_atomically(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file; a former version stays until all of the new one is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
