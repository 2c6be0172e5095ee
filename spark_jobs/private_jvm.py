"""A JVM of ours keeps its settings, its scratch files and its ports from other users."""

from __future__ import annotations

import atexit
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["closed_settings", "settings_file"]

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_UNLESS_SET: Final = "pyspark-shell"


def closed_settings(master: str) -> dict[str, str]:
    """Return settings that close a session on this machine to its other users.

    Scratch files go to a directory of the session's own, which ends with the process. Ports ask
    for a secret. A cluster has workers that must know the same secret, and disks of its own: it
    keeps its settings.

    Args:
        master: Where the session runs.
    """
    if not master.startswith("local"):
        return {}
    scratch = tempfile.mkdtemp(prefix="portolan-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return {
        "spark.local.dir": scratch,
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
    }


@contextmanager
def settings_file(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a JVM that is started in this block read its settings from a file.

    PySpark would put them on its command line, which everybody on the machine can read, and there
    may be passwords among them.

    Args:
        settings: What Spark is to be set to, by name.
    """
    before = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="portolan-spark-") as directory:
        file = Path(directory, "spark.conf")
        file.write_text("".join(f"{_escaped(n)}={_escaped(v)}\n" for n, v in settings.items()))
        options = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        os.environ[_ARGUMENTS] = f"{options} {before or _UNLESS_SET}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """A name or a value as java.util.Properties reads it, whatever it holds."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes)
