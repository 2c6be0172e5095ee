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

_BATCH: Final = 100
_GONE: Final = ".gone"


async def remove_old_runs(queue: RunQueue, directory: Path, older_than_s: float) -> None:
    """Remove runs that ended long ago, and what is left of those whose removal was interrupted.

    A run is either there with its files, and can be resumed, or nothing is: its directory gets
    another name while its row is locked, and its files are removed afterwards, which takes long.

    Args:
        queue: What has their rows.
        directory: The directory of all runs.
        older_than_s: Seconds since the end of a run.

    Raises:
        Unavailable: The catalogue does not answer, or a directory cannot be renamed; its run stays.
    """
    # First what was left: its names are needed if one of its runs has come to life again since.
    await asyncio.to_thread(_remove, directory)
    async with queue.forgetting(older_than_s, _BATCH) as runs:
        await asyncio.to_thread(_rename, directory, runs)
    await asyncio.to_thread(_remove, directory)


def _rename(directory: Path, runs: Iterable[str]) -> None:
    for run in runs:
        try:
            (directory / run).rename(directory / f"{run}{_GONE}")
        except FileNotFoundError:
            continue  # it never began, or its files were removed by hand
        except OSError as error:
            detail = f"The directory of the run {run} cannot be renamed: {error.strerror}."
            raise Unavailable(detail, system="jobs") from error


def _remove(directory: Path) -> None:
    for path in directory.glob(f"*{_GONE}"):
        shutil.rmtree(path, ignore_errors=True)
