"""Takes the room to write from processes, and gives it back: a disk that is full, and is not.

No process may write files longer than a few bytes: what the system answers half way through is
what it answers on a full disk, but for the number (`EFBIG` instead of `ENOSPC`).
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

__all__ = ["LIMIT", "allow", "restored_limit", "spark_processes", "this_process"]

LIMIT = 100
"""Bytes: less than any Parquet file, and than any manifest with two stages, has."""


def spark_processes() -> list[int]:
    """The JVM of the session, and what it has started."""
    children = psutil.Process().children()  # embedded servers in Java are among them
    (jvm,) = [child for child in children if "pyspark-shell" in child.cmdline()]
    return [jvm.pid, *(child.pid for child in jvm.children(recursive=True))]


def this_process() -> list[int]:
    """The planner: it writes the manifests."""
    return [psutil.Process().pid]


def allow(processes: list[int], size: int) -> None:
    """Let processes write files of so many bytes at most."""
    for pid in processes:
        with suppress(ProcessLookupError):  # Spark ends Python workers that were idle for a minute
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


@contextmanager
def restored_limit(processes: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        allow(processes, resource.RLIM_INFINITY)
