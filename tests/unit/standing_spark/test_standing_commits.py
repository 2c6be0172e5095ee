"""Commits: each batch and its results are committed exactly once, despite any failure."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from mediator.standing.planning import Plan
from mediator.standing.state import StreamTuple
from spark_jobs.commit_directory import StateBusy, StateMismatch
from spark_jobs.standing import tasks
from spark_jobs.standing.commits import Commit, Epoch, Segment, StateDirectory
from spark_jobs.standing.segments import read_segment
from tests.unit.standing.papers_queries import EXAMPLE_1, document
from tests.unit.standing_spark.in_process import InProcess, PositionedTuple, plan_of, results_in

PAIR = document({"R": "a", "S": "a"}, parallelism=2)
ATTRIBUTES = {"R": "a", "S": "ab", "T": "bc", "U": "c"}


def batch_of(number: int, streams: str = "RS", step_s: float = 0.25) -> list[PositionedTuple]:
    return [
        (4 * number + n, StreamTuple(name, number * step_s, dict.fromkeys(ATTRIBUTES[name], 1)))
        for n, name in enumerate(streams)
    ]


def rows(path: Path) -> list[bytes]:
    return sorted(map(orjson.dumps, results_in(path)))


@contextmanager
def locked_elsewhere(directory: StateDirectory) -> Iterator[None]:
    """Lock a directory like another machine that does not see this machine's locks."""
    (directory.root / "lock").unlink(missing_ok=True)
    with directory.locked():
        yield


def test_a_repeated_batch_is_not_executed_twice(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR))
    running.feed(0, batch_of(0))
    expected, commit = rows(tmp_path), running.feed(1, batch_of(1))
    repeated = InProcess(tmp_path, plan_of(PAIR)).feed(1, batch_of(1))
    assert repeated == commit
    assert len(expected) < len(rows(tmp_path)) == commit.results


def test_a_batch_out_of_order_is_refused(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR))
    running.feed(0, batch_of(0))
    running.feed(1, batch_of(1))
    for number in (0, 3):
        with pytest.raises(StateMismatch, match="does not follow batch 1"):
            running.feed(number, batch_of(number))


def test_other_partition_groups_are_refused(tmp_path: Path) -> None:
    InProcess(tmp_path, plan_of(PAIR)).feed(0, batch_of(0))
    with pytest.raises(StateMismatch, match="2 partition groups, and the plan 3"):
        InProcess(tmp_path, plan_of({**PAIR, "parallelism": 3})).feed(1, batch_of(1))


def test_one_process_at_a_time_executes(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked(), pytest.raises(StateBusy), StateDirectory(tmp_path).locked():
        pass
    with directory.locked():
        pass


def test_only_one_of_two_executions_of_a_batch_is_committed(tmp_path: Path) -> None:
    """The first one started earlier, on a machine with a separate lock."""
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    with first.locked(), locked_elsewhere(second):
        for attempt in range(5):
            second.commit(Commit(attempt, "second"), Commit(attempt - 1, "second"))
            with pytest.raises(StateMismatch, match="another process has taken over"):
                first.commit(Commit(0, "first"), Commit())
            assert second.latest() == Commit(attempt, "second")


def test_files_that_another_process_has_removed_are_not_committed(
    tmp_path: Path,
) -> None:
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    with first.locked():
        for folder in (first.kept, first.staging(0, "first")):
            folder.mkdir(parents=True)
            (folder / "rows").touch()
        with locked_elsewhere(second):
            assert not list(first.kept.iterdir())
            with pytest.raises(StateMismatch, match="another process has taken over"):
                first.commit(Commit(0, "first", has_results=True), Commit())
            assert second.latest() == Commit()


def test_a_commit_without_its_results_is_refused(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked(), pytest.raises(StateMismatch, match="results of batch 0 are missing"):
        directory.commit(Commit(0, "one", has_results=True), Commit())


def test_published_results_can_be_removed(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR))
    running.feed(0, batch_of(0))
    running.joins.directory.publish(running.joins.directory.latest())
    shutil.rmtree(tmp_path / "results" / "batch=0")
    assert running.feed(1, batch_of(1)).batch == 1


def test_committed_results_are_published_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = InProcess(tmp_path, plan_of(PAIR))
    publish = StateDirectory.publish

    def kill(directory: StateDirectory, commit: Commit) -> None:
        if commit.batch == 1:
            raise KeyboardInterrupt
        publish(directory, commit)

    running.feed(0, batch_of(0))
    with monkeypatch.context() as patched:
        patched.setattr(StateDirectory, "publish", kill)
        with pytest.raises(KeyboardInterrupt):
            running.feed(1, batch_of(1))
    assert len(rows(tmp_path)) == 1
    assert len(rows(tmp_path)) < InProcess(tmp_path, plan_of(PAIR)).feed(1, batch_of(1)).results
    assert len(rows(tmp_path)) == running.joins.directory.latest().results


def test_state_of_another_version_is_refused(tmp_path: Path) -> None:
    commit = InProcess(tmp_path, plan_of(PAIR)).feed(0, batch_of(0))
    file = max((tmp_path / "commits").glob("*.json"))
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "format": 0}))
    with pytest.raises(StateMismatch, match="version"):
        StateDirectory(tmp_path).latest()
    segment = tmp_path / min(commit.files)
    segment.write_bytes(segment.read_bytes().replace(b"portolan.standing", b"portolan.standink"))
    with pytest.raises(StateMismatch, match="version"):
        read_segment(segment)


def test_a_plan_continues_in_the_next_process(tmp_path: Path) -> None:
    for number in range(6):
        running = InProcess(tmp_path, plan(materialise=True))
        commit = running.feed(number, batch_of(number, "RSTU"))
    uninterrupted = InProcess(tmp_path / "whole", plan(materialise=True))
    for number in range(6):
        expected = uninterrupted.feed(number, batch_of(number, "RSTU"))
    assert rows(tmp_path) == rows(tmp_path / "whole")
    assert (commit.sent, commit.rows) == (expected.sent, expected.rows)


def test_a_repeated_batch_writes_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for seed in (1, 2):
        path = tmp_path / str(seed)
        running = InProcess(path, plan(materialise=True), draw=Random(seed))
        for number in range(3):
            running.feed(number, batch_of(number, "RSTUTSR"))
        files = sorted(file for file in path.rglob("*") if file.suffix in (".arrow", ".parquet"))
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_files_are_merged_and_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_FAN", 2)
    running = InProcess(tmp_path, plan_of(PAIR), retention_s=1)
    file_counts = []
    for number in range(60):
        commit = running.feed(number, batch_of(number, step_s=1 / 16))
        paths = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("state/**/*.arrow")}
        assert paths == commit.files
        file_counts.append(len(paths))
    # Five or six epochs of five batches each, in two stores: without merges there are more.
    assert max(file_counts[30:]) <= max(file_counts[:30]) <= 36
    assert any(segment.tier > 0 for epoch in commit.epochs for segment in epoch.segments)
    assert commit.results == sum(min(number, 16) * 2 + 1 for number in range(60))
    assert len(list((tmp_path / "commits").iterdir())) <= 2
    assert not list((tmp_path / "staging").iterdir())


def test_a_full_disk_leaves_the_last_commit(tmp_path: Path) -> None:
    running = InProcess(tmp_path, plan_of(PAIR))
    running.feed(0, batch_of(0))
    before, expected = running.joins.directory.latest(), rows(tmp_path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # There is space for the last commit, but for no file of the batch.
    size = max(file.stat().st_size for file in (tmp_path / "commits").iterdir())
    assert size < min((tmp_path / name).stat().st_size for name in before.files)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            running.feed(1, batch_of(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert running.joins.directory.latest() == before
    assert rows(tmp_path) == expected
    assert running.feed(1, batch_of(1)).batch == 1
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.glob("state/**/*.arrow")} == (
        running.joins.directory.latest().files
    )


STEPS = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.scandir"}


@cache
def plan(*, materialise: bool) -> Plan:
    return plan_of(EXAMPLE_1, materialise=materialise)


def execute(path: Path, batches: int) -> None:
    """Execute the remaining batches; the plan changes once."""
    first = StateDirectory(path).latest().batch + 1
    for number in range(first, batches):
        running = InProcess(path, plan(materialise=number >= 1), retention_s=1)
        running.feed(number, batch_of(number, "RSTU"))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted_at(step: int, work: Callable[[], None], interrupt: Callable[[], None]) -> bool:
    """Execute work in a process that is interrupted before it changes or lists files.

    Args:
        step: The number of the change or listing to interrupt.

    Returns:
        Whether the work reached that step.
    """
    child = os.fork()
    if child == 0:
        remaining = step

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal remaining
            if event in STEPS or (event == "open" and arguments[1] in ("wb", "w")):
                remaining -= 1
                if remaining == 0:
                    interrupt()

        sys.addaudithook(count)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the process must not continue pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(2 if remaining <= 0 else 0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) != 1
    return os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 2


def test_a_process_can_be_killed_at_any_time(tmp_path: Path) -> None:
    execute(tmp_path / "whole", 3)
    step, path = 1, tmp_path / "1"
    while interrupted_at(step, partial(execute, path, 3), kill):
        execute(path, 3)
        check_same(path, tmp_path / "whole")
        step += 17
        path = tmp_path / str(step)
    assert step > 60


def test_another_process_can_take_over_at_any_time(tmp_path: Path) -> None:
    """It does not see the lock and executes everything; then the first one continues."""
    execute(tmp_path / "whole", 3)
    step, path = 1, tmp_path / "1"

    def take_over() -> None:
        (path / "lock").unlink(missing_ok=True)
        execute(path, 3)

    def run_first() -> None:
        with suppress(StateMismatch, OSError):
            execute(path, 3)

    while interrupted_at(step, run_first, take_over):
        with StateDirectory(path).locked():
            pass
        check_same(path, tmp_path / "whole")
        step += 17
        path = tmp_path / str(step)
    assert step > 60


def test_another_process_can_take_over_during_a_takeover(tmp_path: Path) -> None:
    epoch = Epoch(0, 0.0, (), (Segment(0, 0, "state/0/new", 1, 0),))
    commit = Commit(0, "second", epochs=(epoch,), has_results=True)
    step, path = 1, tmp_path / "1"

    def touch(*files: Path) -> None:
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def start() -> None:
        directory = StateDirectory(path)
        touch(path / "state/0/old", directory.staging(0, "old") / "rows", path / "commits/.old")
        with directory.locked():
            pass

    def take_over() -> None:
        directory = StateDirectory(path)
        with locked_elsewhere(directory):
            touch(path / "state/0/new", directory.staging(0, "second") / "rows")
            directory.commit(commit, Commit())

    while interrupted_at(step, start, take_over):
        assert StateDirectory(path).latest() == commit
        assert (path / "state/0/new").exists()
        assert (path / "results/batch=0/rows").exists()
        step += 1
        path = tmp_path / str(step)
    assert step > 20


def check_same(path: Path, uninterrupted: Path) -> None:
    """Check that everything was executed once, and that no other files remain."""
    expected, actual = StateDirectory(uninterrupted).latest(), StateDirectory(path).latest()
    assert rows(path) == rows(uninterrupted)
    assert (actual.sent, actual.rows, actual.results) == (
        expected.sent,
        expected.rows,
        expected.results,
    )
    paths = {str(file.relative_to(path)) for file in path.glob("state/**/*") if file.is_file()}
    assert paths == actual.files
