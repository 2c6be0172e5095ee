"""A kind of job whose last stage pauses in its tasks until a test releases them.

The tasks of private linkage's last stage start, signal that, and wait; what follows is what
they do without that. So a test can kill an executor that is truly in the middle of a task.
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
_AT_MOST_S: Final = 300.0
_ENTRY_POINTS: Final = f"[portolan.kinds]\n{KIND} = {__name__}:PausedLinkage\n"


@dataclass(frozen=True)
class Pauses:
    """Signals between a test and the tasks of a run.

    Attributes:
        directory: Where they do.
    """

    directory: Path

    @classmethod
    def start(cls, directory: Path) -> Pauses:
        """Have tasks wait that begin from now on."""
        directory.mkdir()
        pauses = cls(directory)
        pauses._hold.touch()
        return pauses

    @property
    def _hold(self) -> Path:
        return self.directory / "hold"

    def environment(self) -> Mapping[str, str]:
        """Return the environment of a process that is to find this kind of job, and the pauses."""
        about = self.directory / "paused-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paused\nVersion: 0\n")
        (about / "entry_points.txt").write_text(_ENTRY_POINTS)
        return {"PYTHONPATH": str(self.directory), _DIRECTORY: str(self.directory)}

    def tasks(self) -> list[tuple[int, int]]:
        """Return the partition and the process of each task that has started."""
        suffixes = (path.suffixes for path in self.directory.glob("task.*"))
        return [(int(partition[1:]), int(process[1:])) for partition, process in suffixes]

    def end(self) -> None:
        """Let tasks go on; those that begin later do not wait."""
        self._hold.unlink()

    def pause(self, partition: int) -> None:
        """Signal that a task has started, and wait until it is released."""
        (self.directory / f"task.{partition}.{os.getpid()}").touch()
        until = time.monotonic() + _AT_MOST_S
        while self._hold.exists() and time.monotonic() < until:
            time.sleep(0.05)


class PausedLinkage(PrivateLinkage):
    """Links encoded records, and pauses in the last stage."""

    name = KIND

    def stages(self, spec: PrivateSpec) -> tuple[Stage, ...]:
        """Return the stages of private linkage, the last of which pauses."""
        *others, last = super().stages(spec)
        return (*others, Stage(last.name, partial(_paused, last)))


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
