"""A batch of tasks in one process: one queue of jobs for a GPU and the cores of its machine.

The GPU takes jobs from the beginning, where each has one block in common with the one before, so
that the GPU need be sent the other one only. Cores take from the end, where that is of no use. Each
job is done once, and what comes of it does not depend on who did it (docs/papers/pprl.md, 2.4).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

from spark_jobs.linkage.private.blocks import (
    BlockComparison,
    BlockMatches,
    NamedBlock,
    RecordBlock,
    to_record_batch,
)

__all__ = ["Pair", "compare_batch", "execute_all", "gpu_for", "in_turns"]

Pair: TypeAlias = tuple[RecordBlock, RecordBlock]

_log = logging.getLogger("portolan.jobs")

_CHECK_S: Final = 0.2

NameT = TypeVar("NameT")
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


def gpu_for(comparison: BlockComparison) -> Callable[[], Callable[[Pair], BlockMatches]]:
    """Return what opens the GPU of this machine, in the thread that is to use it."""

    def opened() -> Callable[[Pair], BlockMatches]:
        from spark_jobs.linkage.private.gpu.device import OnGpu  # noqa: PLC0415 - needs CUDA

        gpu = OnGpu(comparison)
        return lambda job: gpu.compare(*job)

    return opened


def compare_batch(
    batches: Iterable[pa.RecordBatch],
    comparison: BlockComparison,
    pairs: Sequence[tuple[str, str]],
    cores: int,
) -> Iterator[pa.RecordBatch]:
    """Compare pairs of blocks, by their names, on the GPU and the cores.

    Each block comes once: ``block``, ``party``, ``ids``, ``ranks``, ``words``.

    Returns:
        Rows of `RESULT_DDL` for each pair, in an order that does not depend on who compared it.
    """
    blocks = {
        row["block"]: NamedBlock.of(row, len(comparison.by_selectivity))
        for batch in batches
        for row in batch.to_pylist()
    }
    named = [(blocks[left], blocks[right]) for left, right in in_turns(pairs)]
    jobs = [(left.block, right.block) for left, right in named]
    done = execute_all(jobs, lambda job: comparison.compare(*job), cores, gpu_for(comparison))
    for (left, right), compared in zip(named, done, strict=True):
        yield to_record_batch(left, right, compared)


def in_turns(pairs: Sequence[tuple[NameT, NameT]]) -> list[tuple[NameT, NameT]]:
    """Sort distinct pairs so that neighbours differ in one of their two names, wherever they can.

    All partners of a left name follow each other. First comes the one that was met last, if it is
    among them; last one that the next left name meets, too.
    """
    rows: dict[NameT, list[NameT]] = {}
    for left, right in pairs:
        rows.setdefault(left, []).append(right)
    lefts, ordered = list(rows), list[tuple[NameT, NameT]]()
    for at, left in enumerate(lefts):
        met = {ordered[-1][1]} if ordered else set()
        next_ = set(rows[lefts[at + 1]]) if at + 1 < len(lefts) else set()
        rights = sorted(rows[left], key=lambda right: (right not in met, right in next_))
        ordered += [(left, right) for right in rights]
    return ordered


def execute_all(
    jobs: Sequence[JobT],
    on_core: Callable[[JobT], DoneT],
    cores: int,
    opened: Callable[[], Callable[[JobT], DoneT]] | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[DoneT]:
    """Do jobs on a device and on cores.

    A device that fails gives back its job, and is not used again: the log says so, and cores do
    what is left. It has taken its first job before any core has taken one.

    Args:
        jobs: What is to be done; about a second each, for that long it takes to stop.
        on_core: Does a job; called by several threads at once.
        cores: How many of them; 0: the device does all that it can.
        opened: Opens the device, in the one thread that uses it, and returns what does a job there;
            whatever that raises, the device is not used again. None: there is none.
        check: Called by this thread every now and then; what it raises ends all.

    Returns:
        What came of each job, in their order.

    Raises:
        Exception: What the first job that failed on a core has raised, or `check`; no further job
            was begun then.
    """
    return _Queue(jobs, on_core).emptied(cores, opened, check)


class _Queue(Generic[JobT, DoneT]):
    """Jobs by their numbers: those that wait, and what came of the others."""

    def __init__(self, jobs: Sequence[JobT], on_core: Callable[[JobT], DoneT]) -> None:
        self._jobs = jobs
        self._on_core = on_core
        self._waiting = deque(range(len(jobs)))  # whose own methods are atomic
        self._done: dict[int, DoneT] = {}

    def emptied(
        self,
        cores: int,
        opened: Callable[[], Callable[[JobT], DoneT]] | None,
        check: Callable[[], None],
    ) -> list[DoneT]:
        with ThreadPoolExecutor(cores + 1, thread_name_prefix="hybrid") as pool:
            futures: list[Future[None]] = []
            if opened is not None and (first := self._taken(self._waiting.popleft)) is not None:
                futures.append(pool.submit(self._device, opened, first))
            futures += [pool.submit(self._core) for _ in range(cores)]
            try:
                _wait_for(futures, check)
                self._core(check)  # what a device gave back when no core was left
            except BaseException:
                self._waiting.clear()
                raise
        return [self._done[number] for number in range(len(self._jobs))]

    def _core(self, check: Callable[[], None] = lambda: None) -> None:
        while (number := self._taken(self._waiting.pop)) is not None:
            check()
            self._done[number] = self._on_core(self._jobs[number])

    def _device(self, opened: Callable[[], Callable[[JobT], DoneT]], first: int) -> None:
        number: int | None = first
        try:
            do = opened()
            while number is not None:
                self._done[number] = do(self._jobs[number])
                number = self._taken(self._waiting.popleft)
        except Exception as error:  # noqa: BLE001 - cores can do whatever a device cannot
            assert number is not None
            self._waiting.appendleft(number)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            _log.warning("the GPU cannot be used, the cores go on without it: %s", reason)

    @staticmethod
    def _taken(take: Callable[[], int]) -> int | None:
        try:
            return take()
        except IndexError:
            return None


def _wait_for(futures: Sequence[Future[None]], check: Callable[[], None]) -> None:
    """Wait until all have ended; raises what the first one has raised."""
    waiting = set(futures)
    while waiting:
        check()
        ended, waiting = wait(waiting, _CHECK_S, FIRST_EXCEPTION)
        for future in ended:
            future.result()
