"""The directory of a run: the Parquet of finished stages, and a manifest that lists them.

A directory belongs to one run. Each execution of the run is an *attempt* with its own manifest, and
a higher number than all earlier attempts.

Crash windows:

1. Killed while a stage's Parquet is written: no manifest names these files; the next attempt
   removes them and executes the stage again.
2. Killed between the last file and the manifest: the same.
3. Killed after the manifest was renamed into place: the stage is finished; the next attempt starts
   with a copy of that manifest, and continues after the stage.
4. A worker that lost the run without noticing continues: it writes only its own manifest, and
   files of its own attempt. The current attempt has already read that manifest, and reads no later
   version. Later attempts start with the current one's copy, even if it dies before it finishes a
   stage. So the older worker's writes, while its files are removed, have no effect; at worst it
   finds its files removed, and fails.
5. The job or its specification differs: the manifest names the job, and no stage is reused.
6. Files that a manifest names were removed from the disk: that stage and all later ones are
   executed again, because they may depend on it.

A manifest is renamed into place after it and its files are on the disk, so a crash of the machine
leaves the old one or the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from mediator.embedded.directories import private_directory
from spark_jobs.atomic_file import atomic_file, flush_directory

__all__ = ["FinishedStage", "RunDirectory"]

_MANIFEST_PREFIX: Final = "manifest-"
_STAGES: Final = "stages"


@dataclass(frozen=True, slots=True)
class FinishedStage:
    """A finished stage; `directory` is its Parquet below the run's stages, None without a frame."""

    directory: str | None
    rows: int = 0
    seconds: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)
    reports: Mapping[str, Any] = field(default_factory=dict)


class RunDirectory:
    """One attempt on the directory of a run; created if missing, and private to the user.

    Attributes:
        attempt: The number of this attempt; by default, the last one plus 1.
        stages: The finished stages, in order of completion.
        publishing_since: When an attempt started writing into a class (seconds since 1970); None:
            none did.

    Raises:
        OSError: It cannot be created or written, or belongs to another user.
    """

    def __init__(self, path: Path, attempt: int | None = None) -> None:
        self.path = path.resolve()
        private_directory(self.path)
        private_directory(self.path / _STAGES)
        attempts = self._attempts()
        self.attempt = attempt or max(attempts, default=0) + 1
        # This attempt's manifest exists if a worker died in it.
        earlier = [number for number in attempts if number <= self.attempt]
        self._job: str | None = None
        self.publishing_since: float | None = None
        stages = self._read(max(earlier)) if earlier else {}
        self.stages: Mapping[str, FinishedStage] = dict(takewhile(self._exists, stages.items()))
        # Before anything is removed: an older attempt can commit files during the sweep, and the
        # next attempt must not start with its manifest.
        self._write(self.stages)
        self._sweep()

    def claim(self, job: str) -> bool:
        """Set the job that the stages belong to; False if they belong to another job."""
        self._job = self._job or job
        return self._job == job

    def new_path(self) -> Path:
        """Return the path of a new directory for a stage's Parquet."""
        return self.path / _STAGES / f"{self.attempt:06d}-{uuid4().hex}"

    def path_of(self, directory: str) -> Path:
        return self.path / _STAGES / directory

    def frame(self, stage: str) -> Path:
        """Return the Parquet of a finished stage.

        Raises:
            LookupError: It is not finished, or has no frame.
        """
        directory = self.stages[stage].directory
        if directory is None:
            raise LookupError(f"the stage {stage} has no frame")
        return self.path_of(directory)

    def commit(self, name: str, stage: FinishedStage) -> None:
        """Record a stage as finished, durably."""
        if stage.directory is not None:
            # To the disk before the manifest names it.
            _flush(self.path_of(stage.directory))
        stages = {**self.stages, name: stage}
        self._write(stages)
        self.stages = stages

    def start_publishing(self, now: float) -> float:
        """Record, durably, that writing into a class starts now (seconds since 1970).

        Returns:
            When the first attempt started it.
        """
        if self.publishing_since is None:
            self.publishing_since = now
            self._write(self.stages)
        return self.publishing_since

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _attempts(self) -> list[int]:
        names = [
            path.stem.removeprefix(_MANIFEST_PREFIX)
            for path in self.path.glob(f"{_MANIFEST_PREFIX}*.json")
        ]
        return [int(name) for name in names if name.isdigit()]

    def _manifest(self, attempt: int) -> Path:
        return self.path / f"{_MANIFEST_PREFIX}{attempt:06d}.json"

    def _read(self, attempt: int) -> dict[str, FinishedStage]:
        document = orjson.loads(self._manifest(attempt).read_bytes())
        self._job = document.get("job")
        self.publishing_since = document.get("publishing_since")
        return {name: FinishedStage(**members) for name, members in document["stages"].items()}

    def _exists(self, stage: tuple[str, FinishedStage]) -> bool:
        directory = stage[1].directory
        return directory is None or self.path_of(directory).is_dir()

    def _write(self, stages: Mapping[str, FinishedStage]) -> None:
        with atomic_file(self._manifest(self.attempt)) as file:
            since = self.publishing_since
            manifest = {"job": self._job, "publishing_since": since, "stages": stages}
            file.write(orjson.dumps(manifest))
        flush_directory(self.path)

    def _sweep(self) -> None:
        finished_directories = {stage.directory for stage in self.stages.values()}
        for path in (self.path / _STAGES).iterdir():
            # Files of later attempts stay: this worker may have lost the run without noticing.
            if (
                path.name not in finished_directories
                and int(path.name.partition("-")[0]) <= self.attempt
            ):
                shutil.rmtree(path, ignore_errors=True)


def _flush(directory: Path) -> None:
    """Flush files to the disk; Spark leaves them in the page cache."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    flush_directory(directory)
