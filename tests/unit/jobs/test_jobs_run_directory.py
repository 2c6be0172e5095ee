"""The files of a run: stages count once a manifest names them; attempts are isolated."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from spark_jobs.runner.run_directory import FinishedStage, RunDirectory


def write(directory: RunDirectory, text: str) -> str:
    """Write a file in place of a stage's Parquet; nothing counts yet."""
    target = directory.new_path()
    target.mkdir()
    (target / "part-0").write_text(text)
    return target.name


def keep(directory: RunDirectory, stage: str, text: str) -> None:
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
    keep(first, "one", "a")
    first.commit("report", FinishedStage(None, reports={"r": {}}))
    again = RunDirectory(tmp_path)
    assert again.attempt == first.attempt + 1
    assert list(again.stages) == ["one", "report"]
    assert again.stages["one"] == first.stages["one"]
    assert read(again, "one") == "a"
    with pytest.raises(LookupError, match="no frame"):
        again.frame("report")


def test_uncommitted_files_are_swept(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    keep(first, "one", "a")
    lost = write(first, "b")
    again = RunDirectory(tmp_path)
    assert not again.path_of(lost).exists()
    assert read(again, "one") == "a"


def test_an_attempt_that_lost_the_run_changes_nothing(tmp_path: Path) -> None:
    slow = RunDirectory(tmp_path, 1)
    keep(slow, "one", "a")
    quick = RunDirectory(tmp_path, 2)
    keep(slow, "two", "slow")
    keep(quick, "two", "quick")
    keep(slow, "three", "slow")
    assert read(quick, "two") == "quick"
    after = RunDirectory(tmp_path, 3)
    assert list(after.stages) == ["one", "two"]
    assert read(after, "two") == "quick"


def test_what_an_older_attempt_commits_while_its_files_are_removed_counts_for_nobody(
    tmp_path: Path,
) -> None:
    older = RunDirectory(tmp_path, 1)
    keep(older, "one", "a")
    half = write(older, "first half")
    dying = RunDirectory(tmp_path, 2)
    assert not dying.path_of(half).exists()
    older.path_of(half).mkdir()
    (older.path_of(half) / "part-1").write_text("second half")
    older.commit("two", FinishedStage(half))
    for attempt in (3, 4):
        assert list(RunDirectory(tmp_path, attempt).stages) == ["one"]


def test_an_attempt_that_dies_before_it_has_removed_anything_takes_nothing_from_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was committed before, nor files that are committed then."""
    older = RunDirectory(tmp_path, 1)
    keep(older, "one", "a")
    written = write(older, "b")

    def dies(_: Path, target: Path) -> Path:
        raise KeyboardInterrupt(target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            RunDirectory(tmp_path, 2)
    older.commit("two", FinishedStage(written))
    after = RunDirectory(tmp_path, 3)
    assert [read(after, stage) for stage in after.stages] == ["a", "b"]


def test_an_attempt_that_opens_late_neither_reads_nor_sweeps_what_is_newer(tmp_path: Path) -> None:
    keep(RunDirectory(tmp_path, 1), "one", "a")
    quick = RunDirectory(tmp_path, 2)
    keep(quick, "two", "quick")
    unfinished = write(quick, "b")
    late = RunDirectory(tmp_path, 1)
    assert list(late.stages) == ["one"]
    assert quick.path_of(unfinished).exists()
    assert read(quick, "two") == "quick"


def test_files_are_on_the_disk_before_a_manifest_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the machine cannot be tested here, but what is flushed before the name counts."""
    directory = RunDirectory(tmp_path)
    fsync, replace = os.fsync, Path.replace
    flushed: set[int] = set()
    named: list[set[int]] = []

    def note(handle: int) -> None:
        fsync(handle)
        flushed.add(os.fstat(handle).st_ino)

    def name(written: Path, target: Path) -> Path:
        stage = directory.path_of(kept)
        needed = {path.stat().st_ino for path in (written, stage, stage / "part-0")}
        named.append(needed - flushed)
        return replace(written, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "replace", name)
    kept = write(directory, "a")
    directory.commit("one", FinishedStage(kept))
    assert named == [set()]


def test_a_stage_counts_when_a_manifest_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    kept = write(directory, "a")

    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        directory.commit("one", FinishedStage(kept))
    assert not directory.stages


def test_stages_are_taken_up_by_the_same_job_alone(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    assert first.claim("one")
    keep(first, "one", "a")
    again = RunDirectory(tmp_path)
    assert not again.claim("other")
    assert again.claim("one")
    assert RunDirectory(tmp_path / "new").claim("other")


def test_a_stage_with_missing_files_is_repeated_with_all_later_ones(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    for stage in ("one", "two", "three"):
        keep(first, stage, stage)
    shutil.rmtree(first.frame("two"))
    lost = first.frame("three")
    again = RunDirectory(tmp_path)
    assert list(again.stages) == ["one"]
    assert not lost.exists()


def test_a_restarted_attempt_continues(tmp_path: Path) -> None:
    keep(RunDirectory(tmp_path, 4), "one", "a")
    assert read(RunDirectory(tmp_path, 4), "one") == "a"


def test_a_commit_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    keep(directory, "one", "a")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    written = write(directory, "b")
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            directory.commit("two", FinishedStage(written))
    assert list(directory.stages) == ["one"]
    assert list(RunDirectory(tmp_path).stages) == ["one"]
    assert len(list(tmp_path.glob("manifest*"))) == 2, (
        "one of each attempt, and nothing half written"
    )


def test_all_attempts_know_when_the_first_one_began_to_publish(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    first.claim("job")
    keep(first, "one", "a")
    assert first.publishing_since is None
    assert first.start_publishing(5.0) == 5.0
    again = RunDirectory(tmp_path)
    assert again.publishing_since == 5.0
    assert again.start_publishing(9.0) == 5.0
    again.commit("two", FinishedStage(None))
    third = RunDirectory(tmp_path)
    assert third.start_publishing(12.0) == 5.0
    assert third.claim("job")
    assert [*third.stages] == ["one", "two"]
