"""A job kind whose last stage pauses in its tasks until a test releases them.

The tasks of private linkage's last stage signal their start and wait before they do their usual
work. Thus a test can kill an executor in the middle of a task.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.linkage.private.kind import PrivateLinkage
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.runner.port import Stage, StageContext

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["KIND", "PausedLinkage", "Pauses"]

KIND: Final = "test.paused"

_DIRECTORY: Final = "PORTOLAN_TEST_PAUSES"
_MAX_PAUSE_S: Final = 300.0
_ENTRY_POINTS: Final = f"[portolan.kinds]\n{KIND} = {__name__}:PausedLinkage\n"


@dataclass(frozen=True)
class Pauses:
    """Signals between a test and the tasks of a run.

    Attributes:
        directory: The directory of the signal files.
    """

    directory: Path

    @classmethod
    def start(cls, directory: Path) -> Pauses:
        """Pause all tasks that start from now on."""
        directory.mkdir()
        pauses = cls(directory)
        pauses._hold.touch()
        return pauses

    @property
    def _hold(self) -> Path:
        return self.directory / "hold"

    def environment(self) -> Mapping[str, str]:
        """Return environment variables with which a process finds this job kind and the pauses."""
        distribution = self.directory / "paused-0.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: paused\nVersion: 0\n")
        (distribution / "entry_points.txt").write_text(_ENTRY_POINTS)
        return {"PYTHONPATH": str(self.directory), _DIRECTORY: str(self.directory)}

    def tasks(self) -> list[tuple[int, int]]:
        """Return the partition and the process of each task that has started."""
        suffixes = (path.suffixes for path in self.directory.glob("task.*"))
        return [(int(partition[1:]), int(process[1:])) for partition, process in suffixes]

    def end(self) -> None:
        """Release all paused tasks; later tasks do not pause."""
        self._hold.unlink()

    def pause(self, partition: int) -> None:
        """Signal that a task has started, and wait for its release."""
        (self.directory / f"task.{partition}.{os.getpid()}").touch()
        deadline_s = time.monotonic() + _MAX_PAUSE_S
        while self._hold.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)


class PausedLinkage(PrivateLinkage):
    """Private linkage that pauses in its last stage."""

    name = KIND

    def stages(self, spec: PrivateSpec) -> tuple[Stage, ...]:
        """Return private linkage's stages; the last one pauses."""
        *stages, last = super().stages(spec)
        return (*stages, Stage(last.name, partial(_paused, last)))


def _paused(stage: Stage, context: StageContext) -> Any:
    frame: Any = stage.run(context)
    work = partial(_pause, Pauses(Path(os.environ[_DIRECTORY])))
    return frame.mapInArrow(work, frame.schema)


def _pause(pauses: Pauses, batches: Iterator[RecordBatch]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    pauses.pause(context.partitionId())
    yield from batches
