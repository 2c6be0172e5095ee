"""A simulated full disk: takes the space to write from processes and restores it.

No process can write files longer than a few bytes: a longer write fails as on a full disk, except
for the error number (`EFBIG` instead of `ENOSPC`).
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

__all__ = ["LIMIT", "allow", "restored_limit", "spark_processes", "this_process"]

LIMIT = 100
"""Bytes: less than the size of any Parquet file and of any manifest with two stages."""


def spark_processes() -> list[int]:
    """Return the session's JVM and the processes that it has started."""
    children = psutil.Process().children()  # embedded servers in Java are among them
    (jvm,) = [child for child in children if "pyspark-shell" in child.cmdline()]
    return [jvm.pid, *(child.pid for child in jvm.children(recursive=True))]


def this_process() -> list[int]:
    """Return the planner, which writes the manifests."""
    return [psutil.Process().pid]


def allow(processes: list[int], size: int) -> None:
    """Limit the size in bytes of files that processes can write."""
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
