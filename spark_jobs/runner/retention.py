"""Removes old runs: their rows in the catalogue, and their directories."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mediator.base.errors import Unavailable
from mediator.catalogue.run_queue import RunQueue

__all__ = ["remove_old_runs"]

_BATCH_RUNS: Final = 100
_REMOVED_SUFFIX: Final = ".gone"


async def remove_old_runs(queue: RunQueue, directory: Path, older_than_s: float) -> None:
    """Remove runs that ended long ago, and the remains of interrupted removals.

    A run with a row has its files and can be resumed. A removal renames the directory while the row
    is locked, and removes the files afterwards, because that takes long.

    Args:
        queue: Stores their rows.
        directory: The directory of all runs.
        older_than_s: Seconds since the end of a run.

    Raises:
        Unavailable: The catalogue does not answer, or a directory cannot be renamed; its run stays.
    """
    # First the remains: a run resumed since an interrupted removal needs the name again.
    await asyncio.to_thread(_remove, directory)
    async with queue.forgetting(older_than_s, _BATCH_RUNS) as runs:
        await asyncio.to_thread(_rename, directory, runs)
    await asyncio.to_thread(_remove, directory)


def _rename(directory: Path, runs: Iterable[str]) -> None:
    for run in runs:
        try:
            (directory / run).rename(directory / f"{run}{_REMOVED_SUFFIX}")
        except FileNotFoundError:
            continue  # it never started, or its files were removed by hand
        except OSError as error:
            detail = f"The directory of the run {run} cannot be renamed: {error.strerror}."
            raise Unavailable(detail, system="jobs") from error


def _remove(directory: Path) -> None:
    for path in directory.glob(f"*{_REMOVED_SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)
