"""Job files: JSON documents on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

__all__ = ["read_job_file"]

_MAX_BYTES = 2**20


def read_job_file(path: Path) -> dict[str, Any]:
    """Read a job from a file; ends the command if it is no JSON object.

    Raises:
        typer.BadParameter: It is not.
        OSError: It cannot be read.
    """
    import orjson

    if path.stat().st_size > _MAX_BYTES:
        raise typer.BadParameter(f"A job has {_MAX_BYTES:,} bytes at most.")
    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise typer.BadParameter(f"{path} is not JSON: {location}.") from None
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{path} is no JSON object.")
    return document
