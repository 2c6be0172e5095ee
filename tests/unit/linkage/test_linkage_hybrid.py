"""One queue for a device and cores: either executes each job once, even if the device fails."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from spark_jobs.linkage.private.gpu.hybrid import execute_all, in_turns


@dataclass
class Squarer:
    """Squares numbers and records them; fails at a given number."""

    fails_at: int | None = None
    finished_jobs: list[int] = field(default_factory=list)
    released: threading.Event | None = None

    def do(self, job: int) -> int:
        if self.released is not None:
            assert self.released.wait(30)
        if job == self.fails_at:
            raise MemoryError("out of memory")
        self.finished_jobs.append(job)
        return job * job


def squares(count: int) -> list[int]:
    return [n * n for n in range(count)]


@pytest.mark.parametrize("cores", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_each_job_is_executed_once_and_results_are_in_order(count: int, cores: int) -> None:
    device, core = Squarer(), Squarer()
    assert execute_all(range(count), core.do, cores, lambda: device.do) == squares(count)
    assert Counter(device.finished_jobs + core.finished_jobs) == Counter(range(count))
    assert execute_all(range(count), core.do, cores) == squares(count)


def test_the_device_starts_at_one_end_and_cores_at_the_other() -> None:
    """They wait for each other after each job, so that both get jobs."""
    both = threading.Barrier(2, timeout=30)
    jobs: dict[str, list[int]] = {"device": [], "core": []}

    def executor(name: str) -> Callable[[int], int]:
        def do(job: int) -> int:
            jobs[name].append(job)
            both.wait()
            return job * job

        return do

    assert execute_all(range(10), executor("core"), 1, lambda: executor("device")) == squares(10)
    assert jobs == {"device": [0, 1, 2, 3, 4], "core": [9, 8, 7, 6, 5]}


@pytest.mark.parametrize("fails_at", [0, 3])
def test_cores_take_over_the_jobs_of_a_failed_device(
    fails_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    device, core = Squarer(fails_at), Squarer()
    with caplog.at_level(logging.WARNING, "portolan.jobs"):
        assert execute_all(range(8), core.do, 0, lambda: device.do) == squares(8)
    assert device.finished_jobs == [*range(fails_at)]
    assert sorted(core.finished_jobs) == [*range(fails_at, 8)]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "the GPU cannot be used, the cores continue without it: MemoryError: out of memory"
    ]


def test_a_job_is_not_lost_if_the_device_fails_when_no_core_is_left() -> None:
    """The device holds the first job until the cores have executed all others."""
    others_finished = threading.Event()
    device, core = Squarer(fails_at=0, released=others_finished), Squarer()

    def do(job: int) -> int:
        square = core.do(job)
        if len(core.finished_jobs) == 7:
            others_finished.set()
        return square

    assert execute_all(range(8), do, 2, lambda: device.do) == squares(8)
    assert core.finished_jobs[-1] == 0


def test_cores_do_all_jobs_if_the_device_cannot_be_opened() -> None:
    def open_device() -> Callable[[int], int]:
        raise OSError("no driver")

    core = Squarer()
    assert execute_all(range(5), core.do, 2, open_device) == squares(5)
    assert sorted(core.finished_jobs) == [*range(5)]


@pytest.mark.parametrize("with_device", [True, False])
def test_a_failing_job_stops_all_others(*, with_device: bool) -> None:
    """Neither the other cores nor the device nor the caller start another job."""
    failed = threading.Event()

    class Late(Squarer):
        def do(self, job: int) -> int:
            assert failed.wait(30)
            return super().do(job)

    def on_core(job: int) -> int:
        if job == 999:
            failed.set()
            raise ValueError("unfit")
        assert failed.wait(30)
        executed.append(job)
        never_set.wait(0.05)
        return job * job

    executed: list[int] = []
    never_set = threading.Event()
    device = Late(fails_at=0)
    with pytest.raises(ValueError, match="unfit"):
        execute_all(range(1000), on_core, 2, (lambda: device.do) if with_device else None)
    assert len(executed) < 900
    before = threading.active_count()
    assert not any(t.name.startswith("hybrid") for t in threading.enumerate()), before


def changed_blocks(pair: tuple[int, int], next_pair: tuple[int, int]) -> int:
    return sum(x != y for x, y in zip(pair, next_pair, strict=True))


@pytest.mark.parametrize(("lefts", "rights"), [(1, 1), (1, 5), (5, 1), (2, 2), (4, 7)])
def test_one_block_changes_from_job_to_job(lefts: int, rights: int) -> None:
    pairs = [(i, 100 + j) for i in range(lefts) for j in range(rights)]
    Random(lefts).shuffle(pairs)
    ordered = in_turns(pairs)
    assert sorted(ordered) == sorted(pairs)
    steps = [changed_blocks(pair, next_pair) for pair, next_pair in pairwise(ordered)]
    assert set(steps) <= {1}


def test_blocks_separated_by_length_cost_at_most_one_additional_change() -> None:
    """Each sorted block is compared with a sliding window of the others."""
    for width in (2, 3, 5):
        pairs = [(i, 100 + j) for i in range(12) for j in range(max(i - 1, 0), i + width)]
        Random(width).shuffle(pairs)
        pairs.sort(key=lambda pair: pair[0])
        ordered = in_turns(pairs)
        assert sorted(ordered) == sorted(pairs)
        steps = [changed_blocks(pair, next_pair) for pair, next_pair in pairwise(ordered)]
        assert set(steps) == {1}
    separated = in_turns([(1, 101), (1, 102), (2, 103), (2, 104)])
    assert separated == [(1, 101), (1, 102), (2, 103), (2, 104)]
