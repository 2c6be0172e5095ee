"""Fetches and verifies the jars of the embedded MongoDB stand-in, and compiles its launcher.

`python -m mediator.embedded.jars` fetches them ahead of time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mediator.embedded.port import ServerUnavailable

__all__ = ["LAUNCHER", "REMEDY", "VERSION", "class_path", "fetch_jars"]

VERSION = "1.47.0"
LAUNCHER = "MongoServerLauncher"

_SOURCES = Path(__file__).parent / "java"
# The full name and version: a short name would select the newest plugin.
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_OPTIONS = ("--quiet", "--batch-mode", "--strict-checksums")
_FETCH_WITHIN_S = 300
_COMPILE_WITHIN_S = 120
REMEDY = (
    "Install a JDK (17 or newer) and Maven and run"
    " `python -m mediator.embedded.jars`, or put `mongod` on PATH."
    " Until then the service runs without MongoDB."
)


def fetch_jars() -> Path:
    """Ensure that the jars and the compiled launcher are in the cache; return its directory.

    Raises:
        ServerUnavailable: They are missing and cannot be fetched or compiled, with the reason.
    """
    cache = os.environ.get("PORTOLAN_CACHE")
    directory = (Path(cache) if cache else Path.home() / ".cache" / "portolan") / "jars" / VERSION
    try:
        if not _is_complete(directory):
            _fetch_into(directory)
        if not _classes(directory).exists():
            _compile_into(directory)
    except OSError as error:
        raise _unavailable(f"the jars cannot be kept in {directory} ({error.strerror})") from error
    return directory


def class_path(directory: Path) -> str:
    """Return the Java class path of the launcher, for the directory that `fetch_jars` returned."""
    return os.pathsep.join([str(_classes(directory)), _jars(directory)])


def _jars(directory: Path) -> str:
    return os.pathsep.join(str(directory / jar) for jar in _pinned_digests())


def _pinned_digests() -> dict[str, str]:
    """Return the SHA-256 of each jar by name; only these jars are put on the class path."""
    lines = (_SOURCES / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_complete(directory: Path) -> bool:
    return all(_digest(directory / jar) == digest for jar, digest in _pinned_digests().items())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""


def _classes(directory: Path) -> Path:
    source = (_SOURCES / f"{LAUNCHER}.java").read_bytes()
    # By the digest of the source: a new version is compiled next to the old one.
    return directory / f"launcher-{hashlib.sha256(source).hexdigest()[:16]}"


def _fetch_into(directory: Path) -> None:
    maven = _program("mvn", "Maven is not installed, which fetches the jars")
    with _draft(directory) as name:
        draft = Path(name)
        # A copy of the project, because Maven can write next to it.
        shutil.copy(_SOURCES / "pom.xml", draft)
        goal = [maven, *_MAVEN_OPTIONS, "-f", str(draft / "pom.xml"), _COPY]
        scope = ["-DincludeScope=runtime", f"-DoutputDirectory={draft}"]
        _run([*goal, *scope], _FETCH_WITHIN_S, "Maven could not fetch the jars")
        if not _is_complete(draft):
            raise _unavailable("what Maven fetched differs from the pinned checksums")
        directory.mkdir(parents=True, exist_ok=True)
        for jar in _pinned_digests():
            # Atomic: another process sees no incomplete file.
            (draft / jar).replace(directory / jar)


def _compile_into(directory: Path) -> None:
    javac = _program("javac", "there is no Java compiler: a JDK is needed, a JRE is not enough")
    with _draft(directory) as draft:
        source = str(_SOURCES / f"{LAUNCHER}.java")
        options = ["--release", "17", "-cp", _jars(directory), "-d", f"{draft}/classes"]
        _run([javac, *options, source], _COMPILE_WITHIN_S, "the launcher did not compile")
        try:
            Path(draft, "classes").rename(_classes(directory))
        except OSError:
            # Another process has just created the same classes.
            if not _classes(directory).exists():
                raise


def _draft(directory: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory next to the final one, so that files can be renamed into it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=directory.parent, prefix=".draft-")


def _program(name: str, reason: str) -> str:
    if path := shutil.which(name):
        return path
    raise _unavailable(reason)


def _run(command: list[str], within_s: float, failure: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=within_s)
    except subprocess.TimeoutExpired:
        raise _unavailable(f"{failure} within {within_s:.0f} s") from None
    except subprocess.CalledProcessError as error:
        output = (error.stdout + error.stderr).strip().splitlines()
        raise _unavailable(f"{failure} ({output[0] if output else 'no output'})") from None


def _unavailable(reason: str) -> ServerUnavailable:
    return ServerUnavailable("mongodb", reason, REMEDY)


if __name__ == "__main__":
    try:
        fetch_jars()
    except ServerUnavailable as error:  # ahead of time, that is no error
        sys.stderr.write(f"{error}\n")
