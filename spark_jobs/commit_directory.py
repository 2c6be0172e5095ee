"""Commits of a streaming query: what is kept and what has been made, by the id of the batch.

    commits/000000000042.json    the last commit: the state after a batch, and which files hold it
    state/                       these files; each kind of state has a name for it
    results/batch=7/             results of batch 7
    staging/                     results of batches that are not committed
    checkpoint/                  Spark's offsets

A batch is committed at the moment at which its commit gets its name, and state and results with it.
Whatever else a process leaves behind when it dies is repeated or removed by the next one.

Names count on. A process that begins gives the last commit the next name as well, before it removes
anything: one that still works elsewhere finds the name taken, and can commit no more.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from uuid import uuid4

import orjson

from spark_jobs.atomic_file import flush_directory

__all__ = ["BatchCommit", "CommitDirectory", "StateBusy", "StateMismatch"]

_ATTEMPTS: Final = 16
"""So often is the last commit sought while others commit, or take over."""


class StateMismatch(ValueError):
    """State is not that of Spark's checkpoint, of what is to be executed, or of this version."""


class StateBusy(RuntimeError):
    """Another process executes what a directory is the state of."""


class BatchCommit(Protocol):
    """The state after a batch; made without arguments, the one before the first batch."""

    @property
    def batch(self) -> int:
        """The batch's id; -1 before the first one."""

    @property
    def attempt(self) -> str:
        """Which of the batch's executions this was."""

    @property
    def has_results(self) -> bool:
        """Whether the batch had any."""

    @property
    def files(self) -> frozenset[str]:
        """The files that hold the state, as paths below its directory."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Raises `StateMismatch` if it is of another version."""


CommitT = TypeVar("CommitT", bound=BatchCommit)


class CommitDirectory(Generic[CommitT]):
    """A directory that all processes of Spark can reach.

    Args:
        commits: The type of its commits.
        kept: The name of the folder with the files of the state.
    """

    def __init__(self, root: Path, commits: type[CommitT], kept: str) -> None:
        self.root = root.absolute()
        self.results = self.root / "results"
        self.checkpoint = self.root / "checkpoint"
        self.kept = self.root / kept
        self._type = commits
        self._commits = self.root / "commits"
        self._staging = self.root / "staging"
        self._number = -1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes, and finish what the last one left.

        One on this machine excludes this one. One elsewhere, where the lock is not seen, cannot
        commit from now on.

        Raises:
            StateBusy: There is one on this machine, or others take over again and again.
            StateMismatch: The last commit is of another version.
        """
        for each in (self._commits, self.results):
            each.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as file:
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except OSError:
                raise StateBusy(f"another process works on the state {self.root}") from None
            self._take_over()
            yield

    def latest(self) -> CommitT:
        """Return the last commit.

        Raises:
            StateMismatch: It is of another version.
        """
        return self._read(max(self._numbers(), default=-1))

    def is_next(self, batch: int, last: CommitT) -> bool:
        """Whether a batch follows the last commit; False: it is committed already.

        Raises:
            StateMismatch: It is another one.
        """
        if batch not in (last.batch, last.batch + 1):
            raise StateMismatch(
                f"batch {batch} does not follow batch {last.batch}, which is the last one that"
                f" {self.root} has: its checkpoint is not that of its state"
            )
        return batch != last.batch

    def staging(self, batch: int, attempt: str) -> Path:
        """Return where an execution of a batch writes results."""
        return self._staging / f"{batch}-{attempt}"

    def commit(self, commit: CommitT, before: CommitT) -> None:
        """Commit a batch: its state and its results, or neither.

        Raises:
            StateMismatch: Another process has taken over; it has committed the batch, or will.
            OSError: It could not be written; the commit before is still the last one.
        """
        if not self._append(commit):
            raise StateMismatch(
                f"batch {commit.batch} cannot be committed: another process has taken over the"
                f" state {self.root}"
            )
        self.publish(commit)
        self._remove(before.files - commit.files)
        # The commit before stays, so that whoever lists names meanwhile sees one of the two.
        self._path(self._number - 2).unlink(missing_ok=True)

    def publish(self, commit: CommitT) -> None:
        """Give the results of a commit their name, if they have another one still.

        Raises:
            StateMismatch: There are none.
        """
        if not commit.has_results:
            return
        published = self.results / f"batch={commit.batch}"
        try:
            self.staging(commit.batch, commit.attempt).rename(published)
        except FileNotFoundError:
            if not published.exists():
                raise StateMismatch(f"results of batch {commit.batch} are missing") from None

    def _take_over(self) -> None:
        """Finish the last commit, and remove what executions that were not committed have left.

        Only what was there before the name is taken is removed: what others write comes later.
        """
        files, staged = set(self._kept_files()), list(self._staging.glob("*"))
        temporary = list(self._commits.glob(".*"))
        last = self._take_name()
        # Readers may have removed results that had their name already.
        with suppress(StateMismatch):
            self.publish(last)
        for folder in staged:
            shutil.rmtree(folder, ignore_errors=True)
        # State is merged and dropped, which bounds the number of its files.
        self._remove(files - last.files)
        former = [self._path(each) for each in self._numbers() if each < self._number - 1]
        for path in (*temporary, *former):
            path.unlink(missing_ok=True)

    def _take_name(self) -> CommitT:
        """Give the last commit the next name, and return it."""
        for _ in range(_ATTEMPTS):
            self._number = max(self._numbers(), default=-1)
            # Not found: others have gone on since.
            with suppress(FileNotFoundError):
                last = self._read(self._number)
                if self._append(last):
                    return last
        raise StateBusy(f"other processes work on the state {self.root}")

    def _append(self, commit: CommitT) -> bool:
        """Give a commit the next name; False: another process has it, or a later one."""
        path = self._path(self._number + 1)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(orjson.dumps(commit.to_json()))
                file.flush()
                os.fsync(file.fileno())
            # A link, unlike a renaming, fails if the name is taken.
            os.link(temporary, path)
            flush_directory(self._commits)
        except (FileExistsError, FileNotFoundError):
            # Not found: whoever has taken over has removed the temporary file.
            return False
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._number += 1
        # Names are removed in the end, so one that was taken long ago may be free again.
        return max(self._numbers(), default=-1) == self._number

    def _kept_files(self) -> Iterator[str]:
        for each in self.kept.rglob("*"):
            if each.is_file():
                yield str(each.relative_to(self.root))

    def _remove(self, paths: frozenset[str] | set[str]) -> None:
        for each in paths:
            path = self.root / each
            path.unlink(missing_ok=True)
            # Directories below that of the state go with their last file.
            with suppress(OSError):
                for above in path.parents[: -len(self.kept.parents) - 1]:
                    above.rmdir()

    def _read(self, number: int) -> CommitT:
        if number < 0:
            return self._type()
        return self._type.from_json(orjson.loads(self._path(number).read_bytes()))

    def _numbers(self) -> set[int]:
        return {int(each.stem) for each in self._commits.glob("[0-9]*.json")}

    def _path(self, number: int) -> Path:
        return self._commits / f"{number:012d}.json"
