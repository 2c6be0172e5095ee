"""Commits: what is kept and what has been made, by the id of the batch that did it.

    commits/000000000007.json    the state after batch 7, and which files hold it
    state/                       segments, by epoch, store and partition group
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
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final

import orjson

from mediator.standing.probe_orders import StoreLayout
from spark_jobs.standing.layout_json import layout_from_json, layout_to_json
from spark_jobs.standing.segments import FORMAT, FormatUnknown

__all__ = ["Commit", "Epoch", "Segment", "StateBusy", "StateDirectory", "StateMismatch"]

_LOWEST: Final = float("-inf")


class StateMismatch(ValueError):
    """State, and Spark's checkpoint or a plan, do not belong together."""


class StateBusy(RuntimeError):
    """Another process executes the queries of a directory."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with rows of a store.

    Attributes:
        layout: The index of the layout among those of its epoch.
        tier: How often its rows have been merged with others.
    """

    layout: int
    group: int
    path: str
    rows: int
    tier: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan epoch: what arrived while a plan was active, laid out as that says.

    Attributes:
        newest_s: No row in it begins later.
    """

    number: int
    newest_s: float
    layouts: tuple[StoreLayout, ...]
    segments: tuple[Segment, ...]

    @property
    def is_empty(self) -> bool:
        return self.newest_s == _LOWEST


@dataclass(frozen=True, slots=True)
class Commit:
    """The state after a batch.

    Attributes:
        batch: Its id; -1 before the first one.
        attempt: Which of its executions this was.
        plan: The fingerprint of the plan that is active.
        parallelism: Partition groups.
        latest_s: The latest time of a tuple that was not late.
        epoch_from_s: The watermark when the last epoch began.
        sent: Rows that were sent on each hop of the plan, by its probe order; and
        stored: those that were sent to be kept, by layout, both since it is active.
        late: Tuples that came too late, and were dropped.
        results: Results of all batches.
        has_results: Whether this batch had any.
    """

    batch: int = -1
    attempt: str = ""
    plan: str = ""
    parallelism: int = 0
    latest_s: float = _LOWEST
    epoch_from_s: float = _LOWEST
    epochs: tuple[Epoch, ...] = ()
    sent: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    late: int = 0
    results: int = 0
    has_results: bool = False

    @property
    def files(self) -> frozenset[str]:
        return frozenset(each.path for epoch in self.epochs for each in epoch.segments)

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        return sum(each.rows for epoch in self.epochs for each in epoch.segments)

    def to_json(self) -> dict[str, Any]:
        epochs = [
            {
                "number": each.number,
                "newest_s": _finite(each.newest_s),
                "layouts": [layout_to_json(layout) for layout in each.layouts],
                "segments": [[s.layout, s.group, s.path, s.rows, s.tier] for s in each.segments],
            }
            for each in self.epochs
        ]
        names = ("batch", "attempt", "plan", "parallelism", "sent", "stored", "late", "results")
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in (*names, "has_results")},
            "latest_s": _finite(self.latest_s),
            "epoch_from_s": _finite(self.epoch_from_s),
            "epochs": epochs,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Commit:
        if document.pop("format", None) != FORMAT:
            raise FormatUnknown(f"the state is of another version than {FORMAT}")
        epochs = tuple(
            Epoch(
                each["number"],
                _or_lowest(each["newest_s"]),
                tuple(map(layout_from_json, each["layouts"])),
                tuple(Segment(*of) for of in each["segments"]),
            )
            for each in document.pop("epochs")
        )
        for name in ("latest_s", "epoch_from_s"):
            document[name] = _or_lowest(document[name])
        for name in ("sent", "stored"):
            document[name] = tuple(document[name])
        return cls(**document, epochs=epochs)


class StateDirectory:
    """A directory that all processes of Spark can reach."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.results = self.root / "results"
        self.checkpoint = self.root / "checkpoint"
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
                raise StateBusy(f"another process executes the queries of {self.root}") from None
            self._recover()
            yield

    def latest(self) -> Commit:
        """Return the last commit.

        Raises:
            FormatUnknown: It is of another version.
        """
        numbers = self._committed()
        if not numbers:
            return Commit()
        return Commit.from_json(orjson.loads(self._commit_path(max(numbers)).read_bytes()))

    def staging(self, batch: int, attempt: str) -> Path:
        """Return where an execution of a batch writes results."""
        return self._staging / f"{batch}-{attempt}"

    def commit(self, commit: Commit, before: Commit) -> None:
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

    def publish(self, commit: Commit) -> None:
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
        state = self.root / "state"
        # State is bounded by the windows, and so is the number of its files.
        there = {str(each.relative_to(self.root)) for each in state.rglob("*") if each.is_file()}
        self._remove(there - last.files)

    def _remove(self, paths: frozenset[str] | set[str]) -> None:
        for each in paths:
            path = self.root / each
            path.unlink(missing_ok=True)
            # Directories of an epoch go with its last file.
            with suppress(OSError):
                for above in list(path.parents)[:3]:
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


def _finite(value: float) -> float | None:
    return None if value == _LOWEST else value


def _or_lowest(value: float | None) -> float:
    return _LOWEST if value is None else value
