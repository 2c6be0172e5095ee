"""The file that a result goes to: its form by its suffix, and there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

from spark_jobs.runner.results import Form

__all__ = ["FORMS", "fill"]

FORMS: Final[dict[str, Form]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""The form of a result by the suffix of its file."""


def fill(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file from pieces; what was there stays until all of them are on the disk.

    Raises:
        OSError: It cannot be written.
    """
    written = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with written.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)
