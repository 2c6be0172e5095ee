"""The files of a run: a manifest makes stages valid, and attempts are isolated."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from spark_jobs.runner.run_directory import FinishedStage, RunDirectory


def write(directory: RunDirectory, text: str) -> str:
    """Write a file in place of a stage's Parquet, without committing it."""
    target = directory.new_path()
    target.mkdir()
    (target / "part-0").write_text(text)
    return target.name


def commit_stage(directory: RunDirectory, stage: str, text: str) -> None:
    directory.commit(
        stage, FinishedStage(write(directory, text), 1, 0.5, {"n": 1}, {"r": {"a": [1]}})
    )


def read(directory: RunDirectory, stage: str) -> str:
    return (directory.frame(stage) / "part-0").read_text()


def test_a_run_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = RunDirectory(tmp_path / "jobs" / "run")
    finally:
        os.umask(before)
    for path in (directory.path.parent, directory.path, directory.path / "stages"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_committed_stages_are_available_to_the_next_attempt(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    commit_stage(first, "one", "a")
    first.commit("report", FinishedStage(None, reports={"r": {}}))
    second = RunDirectory(tmp_path)
    assert second.attempt == first.attempt + 1
    assert list(second.stages) == ["one", "report"]
    assert second.stages["one"] == first.stages["one"]
    assert read(second, "one") == "a"
    with pytest.raises(LookupError, match="no frame"):
        second.frame("report")


def test_uncommitted_files_are_swept(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    commit_stage(first, "one", "a")
    lost = write(first, "b")
    second = RunDirectory(tmp_path)
    assert not second.path_of(lost).exists()
    assert read(second, "one") == "a"


def test_an_attempt_that_lost_the_run_changes_nothing(tmp_path: Path) -> None:
    slow = RunDirectory(tmp_path, 1)
    commit_stage(slow, "one", "a")
    quick = RunDirectory(tmp_path, 2)
    commit_stage(slow, "two", "slow")
    commit_stage(quick, "two", "quick")
    commit_stage(slow, "three", "slow")
    assert read(quick, "two") == "quick"
    third = RunDirectory(tmp_path, 3)
    assert list(third.stages) == ["one", "two"]
    assert read(third, "two") == "quick"


def test_a_commit_of_an_older_attempt_whose_files_are_being_removed_is_ignored(
    tmp_path: Path,
) -> None:
    older = RunDirectory(tmp_path, 1)
    commit_stage(older, "one", "a")
    folder = write(older, "first half")
    newer = RunDirectory(tmp_path, 2)
    assert not newer.path_of(folder).exists()
    older.path_of(folder).mkdir()
    (older.path_of(folder) / "part-1").write_text("second half")
    older.commit("two", FinishedStage(folder))
    for attempt in (3, 4):
        assert list(RunDirectory(tmp_path, attempt).stages) == ["one"]


def test_an_attempt_that_dies_before_its_removals_leaves_older_ones_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older attempt loses neither committed stages nor files that it commits later."""
    older = RunDirectory(tmp_path, 1)
    commit_stage(older, "one", "a")
    folder = write(older, "b")

    def die(_: Path, target: Path) -> Path:
        raise KeyboardInterrupt(target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            RunDirectory(tmp_path, 2)
    older.commit("two", FinishedStage(folder))
    third = RunDirectory(tmp_path, 3)
    assert [read(third, stage) for stage in third.stages] == ["a", "b"]


def test_an_attempt_that_opens_late_neither_reads_nor_sweeps_newer_files(tmp_path: Path) -> None:
    commit_stage(RunDirectory(tmp_path, 1), "one", "a")
    quick = RunDirectory(tmp_path, 2)
    commit_stage(quick, "two", "quick")
    unfinished = write(quick, "b")
    late = RunDirectory(tmp_path, 1)
    assert list(late.stages) == ["one"]
    assert quick.path_of(unfinished).exists()
    assert read(quick, "two") == "quick"


def test_files_are_flushed_before_a_manifest_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the machine cannot be tested, but the order of flushes and renames can."""
    directory = RunDirectory(tmp_path)
    fsync, replace = os.fsync, Path.replace
    flushed: set[int] = set()
    unflushed: list[set[int]] = []

    def record_fsync(handle: int) -> None:
        fsync(handle)
        flushed.add(os.fstat(handle).st_ino)

    def record_replace(source: Path, target: Path) -> Path:
        stage = directory.path_of(folder)
        required = {path.stat().st_ino for path in (source, stage, stage / "part-0")}
        unflushed.append(required - flushed)
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    folder = write(directory, "a")
    directory.commit("one", FinishedStage(folder))
    assert unflushed == [set()]


def test_a_stage_without_a_manifest_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    folder = write(directory, "a")

    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        directory.commit("one", FinishedStage(folder))
    assert not directory.stages


def test_only_the_same_job_reuses_stages(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    assert first.claim("one")
    commit_stage(first, "one", "a")
    second = RunDirectory(tmp_path)
    assert not second.claim("other")
    assert second.claim("one")
    assert RunDirectory(tmp_path / "new").claim("other")


def test_a_stage_with_missing_files_is_repeated_with_all_later_ones(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    for stage in ("one", "two", "three"):
        commit_stage(first, stage, stage)
    shutil.rmtree(first.frame("two"))
    removed = first.frame("three")
    second = RunDirectory(tmp_path)
    assert list(second.stages) == ["one"]
    assert not removed.exists()


def test_a_restarted_attempt_continues(tmp_path: Path) -> None:
    commit_stage(RunDirectory(tmp_path, 4), "one", "a")
    assert read(RunDirectory(tmp_path, 4), "one") == "a"


def test_a_failed_commit_leaves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    commit_stage(directory, "one", "a")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    folder = write(directory, "b")
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            directory.commit("two", FinishedStage(folder))
    assert list(directory.stages) == ["one"]
    assert list(RunDirectory(tmp_path).stages) == ["one"]
    assert len(list(tmp_path.glob("manifest*"))) == 2, "one of each attempt, and no partial file"


def test_all_attempts_know_when_the_first_one_started_to_publish(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    first.claim("job")
    commit_stage(first, "one", "a")
    assert first.publishing_since is None
    assert first.start_publishing(5.0) == 5.0
    second = RunDirectory(tmp_path)
    assert second.publishing_since == 5.0
    assert second.start_publishing(9.0) == 5.0
    second.commit("two", FinishedStage(None))
    third = RunDirectory(tmp_path)
    assert third.start_publishing(12.0) == 5.0
    assert third.claim("job")
    assert [*third.stages] == ["one", "two"]
