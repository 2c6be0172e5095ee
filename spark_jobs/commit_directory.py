"""Commits of a streaming query: its state and its results, by the id of the batch.

    commits/000000000042.json    the last commit: the state after a batch, and its files
    state/                       these files; each kind of state has its own name for it
    results/batch=7/             results of batch 7
    staging/                     results of uncommitted batches
    checkpoint/                  Spark's offsets

A batch, with its state and its results, is committed when its commit file gets its name. The next
process repeats or removes anything else that a dead process left.

Names are numbered. A process that starts also gives the last commit the next name, before it
removes anything: a process that still runs elsewhere finds the name taken, and cannot commit.
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

_MAX_ATTEMPTS: Final = 16
"""How many times to look for the last commit while others commit or take over."""


class StateMismatch(ValueError):
    """The state does not match Spark's checkpoint, the job or the version."""


class StateBusy(RuntimeError):
    """Another process uses the state."""


class BatchCommit(Protocol):
    """The state after a batch; without arguments, the state before the first batch."""

    @property
    def batch(self) -> int:
        """The id of the batch; -1 before the first one."""

    @property
    def attempt(self) -> str:
        """The id of the batch's execution."""

    @property
    def has_results(self) -> bool:
        """Whether the batch had results."""

    @property
    def files(self) -> frozenset[str]:
        """The files of the state, as paths below its directory."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Raises `StateMismatch` if it has another version."""


CommitT = TypeVar("CommitT", bound=BatchCommit)


class CommitDirectory(Generic[CommitT]):
    """A directory that all of Spark's processes can access.

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

        A process on this machine excludes this one. A process elsewhere, where the lock has no
        effect, cannot commit from now on.

        Raises:
            StateBusy: Another process runs on this machine, or others take over repeatedly.
            StateMismatch: The last commit has another version.
        """
        for folder in (self._commits, self.results):
            folder.mkdir(parents=True, exist_ok=True)
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
            StateMismatch: It has another version.
        """
        return self._read(max(self._numbers(), default=-1))

    def is_next(self, batch: int, last: CommitT) -> bool:
        """Whether a batch follows the last commit; False: it is the last commit.

        Raises:
            StateMismatch: It is any other batch.
        """
        if batch not in (last.batch, last.batch + 1):
            raise StateMismatch(
                f"batch {batch} does not follow batch {last.batch}, which is the last one that"
                f" {self.root} has: its checkpoint is not that of its state"
            )
        return batch != last.batch

    def staging(self, batch: int, attempt: str) -> Path:
        """Return the directory to which an execution of a batch writes results."""
        return self._staging / f"{batch}-{attempt}"

    def commit(self, commit: CommitT, before: CommitT) -> None:
        """Commit a batch: its state and its results, or neither.

        Raises:
            StateMismatch: Another process has taken over; it has committed the batch, or will.
            OSError: It could not be written; the previous commit is still the last one.
        """
        if not self._append(commit):
            raise StateMismatch(
                f"batch {commit.batch} cannot be committed: another process has taken over the"
                f" state {self.root}"
            )
        self.publish(commit)
        self._remove(before.files - commit.files)
        # The previous commit stays, so that concurrent listings see one of the two.
        self._path(self._number - 2).unlink(missing_ok=True)

    def publish(self, commit: CommitT) -> None:
        """Rename the results of a commit to their final name, unless they have it.

        Raises:
            StateMismatch: They are missing.
        """
        if not commit.has_results:
            return
        target = self.results / f"batch={commit.batch}"
        try:
            self.staging(commit.batch, commit.attempt).rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise StateMismatch(f"results of batch {commit.batch} are missing") from None

    def _take_over(self) -> None:
        """Finish the last commit, and remove files of uncommitted executions.

        Only files listed before the name was taken are removed: other processes write later ones.
        """
        files, staged = set(self._kept_files()), list(self._staging.glob("*"))
        temporary = list(self._commits.glob(".*"))
        last = self._take_name()
        # Readers may have removed results that had their final name.
        with suppress(StateMismatch):
            self.publish(last)
        for folder in staged:
            shutil.rmtree(folder, ignore_errors=True)
        # Merging and dropping state bounds the number of its files.
        self._remove(files - last.files)
        former = [self._path(number) for number in self._numbers() if number < self._number - 1]
        for path in (*temporary, *former):
            path.unlink(missing_ok=True)

    def _take_name(self) -> CommitT:
        """Give the last commit the next name, and return it."""
        for _ in range(_MAX_ATTEMPTS):
            self._number = max(self._numbers(), default=-1)
            # Not found: others have committed since.
            with suppress(FileNotFoundError):
                last = self._read(self._number)
                if self._append(last):
                    return last
        raise StateBusy(f"other processes work on the state {self.root}")

    def _append(self, commit: CommitT) -> bool:
        """Give a commit the next name; False: another process has taken it, or a later one."""
        path = self._path(self._number + 1)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(orjson.dumps(commit.to_json()))
                file.flush()
                os.fsync(file.fileno())
            # A link, unlike a rename, fails if the name is taken.
            os.link(temporary, path)
            flush_directory(self._commits)
        except (FileExistsError, FileNotFoundError):
            # Not found: the process that took over has removed the temporary file.
            return False
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._number += 1
        # Old names are removed, so a name that was taken long ago can be free again.
        return max(self._numbers(), default=-1) == self._number

    def _kept_files(self) -> Iterator[str]:
        for file in self.kept.rglob("*"):
            if file.is_file():
                yield str(file.relative_to(self.root))

    def _remove(self, paths: frozenset[str] | set[str]) -> None:
        for name in paths:
            path = self.root / name
            path.unlink(missing_ok=True)
            # Directories below the state's are removed with their last file.
            with suppress(OSError):
                for parent in path.parents[: -len(self.kept.parents) - 1]:
                    parent.rmdir()

    def _read(self, number: int) -> CommitT:
        if number < 0:
            return self._type()
        return self._type.from_json(orjson.loads(self._path(number).read_bytes()))

    def _numbers(self) -> set[int]:
        return {int(path.stem) for path in self._commits.glob("[0-9]*.json")}

    def _path(self, number: int) -> Path:
        return self._commits / f"{number:012d}.json"
