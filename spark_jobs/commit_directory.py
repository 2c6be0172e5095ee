"""Commits of a streaming query: what is kept and what has been made, by the id of the batch.

    commits/000000000007.json    the state after batch 7, and which files hold it
    state/                       these files; each kind of state has a name for it
    results/batch=7/             results of batch 7
    staging/                     results of batches that are not committed
    checkpoint/                  Spark's offsets

A batch is committed at the moment at which its commit gets its name, and state and results with it.
Whatever else a process leaves behind when it dies is repeated or removed by the next one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import orjson

__all__ = ["BatchCommit", "CommitDirectory", "FormatUnknown", "StateBusy", "StateMismatch"]


class FormatUnknown(ValueError):
    """State of another version of Portolan."""


class StateMismatch(ValueError):
    """State, and Spark's checkpoint or what is to be executed, do not belong together."""


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
        """Raises `FormatUnknown` if it is of another version."""


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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes of this machine, and finish what the last one left.

        Raises:
            StateBusy: There is one.
        """
        for each in (self._commits, self.results):
            each.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as file:
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except OSError:
                raise StateBusy(f"another process works on the state {self.root}") from None
            self._recover()
            yield

    def latest(self) -> CommitT:
        """Return the last commit.

        Raises:
            FormatUnknown: It is of another version.
        """
        numbers = self._committed()
        if not numbers:
            return self._type()
        return self._type.from_json(orjson.loads(self._commit_path(max(numbers)).read_bytes()))

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
            StateMismatch: Somebody else has committed it.
            OSError: It could not be written; the commit before is still the last one.
        """
        path = self._commit_path(commit.batch)
        temporary = path.with_name(f".{path.name}.{commit.attempt}")
        try:
            with temporary.open("wb") as file:
                file.write(orjson.dumps(commit.to_json()))
                file.flush()
                os.fsync(file.fileno())
            # A link, unlike a renaming, fails if the name is taken.
            os.link(temporary, path)
            _flush(self._commits)
        except FileExistsError:
            raise StateMismatch(f"batch {commit.batch} has been committed by another") from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self.publish(commit)
        self._remove(before.files - commit.files)
        if before.batch >= 0:
            self._commit_path(before.batch).unlink(missing_ok=True)

    def publish(self, commit: CommitT) -> None:
        """Give the results of a commit their name, if they have another one still."""
        staged = self.staging(commit.batch, commit.attempt)
        if commit.has_results and staged.exists():
            staged.rename(self.results / f"batch={commit.batch}")

    def _recover(self) -> None:
        """Finish the last commit, and remove what executions that were not committed have left."""
        last = self.latest()
        self.publish(last)
        shutil.rmtree(self._staging, ignore_errors=True)
        for number in self._committed() - {last.batch}:
            self._commit_path(number).unlink(missing_ok=True)
        for each in self._commits.glob(".*"):
            each.unlink(missing_ok=True)
        # State is merged and dropped, which bounds the number of its files.
        found = self.kept.rglob("*")
        there = {str(each.relative_to(self.root)) for each in found if each.is_file()}
        self._remove(there - last.files)

    def _remove(self, paths: frozenset[str] | set[str]) -> None:
        for each in paths:
            path = self.root / each
            path.unlink(missing_ok=True)
            # Directories below that of the state go with their last file.
            with suppress(OSError):
                for above in path.parents[: -len(self.kept.parents) - 1]:
                    above.rmdir()

    def _committed(self) -> set[int]:
        return {int(each.stem) for each in self._commits.glob("[0-9]*.json")}

    def _commit_path(self, batch: int) -> Path:
        return self._commits / f"{batch:012d}.json"


def _flush(directory: Path) -> None:
    """Put the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
