"""A batch of tasks in one process: one queue of jobs for a GPU and the cores of its machine.

The GPU takes jobs from the beginning, where each has one block in common with the one before, so
that only the other one has to be sent to the GPU. Cores take from the end, where that is of no use.
Each job is done once, and its result does not depend on who did it (docs/papers/pprl.md, 2.4).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

import pyarrow as pa

from spark_jobs.linkage.private.blocks import (
    BlockComparison,
    BlockMatches,
    MatchLimit,
    NamedBlock,
    Pair,
    to_record_batches,
)

__all__ = ["compare_batch", "execute_all", "gpu_for", "in_turns"]

_log = logging.getLogger("portolan.jobs")

NameT = TypeVar("NameT")
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


def gpu_for(comparison: BlockComparison) -> Callable[[], Callable[[Pair], BlockMatches]]:
    """Return a function that opens the GPU of this machine, in the thread that will use it."""

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
        Rows of `RESULT` for each pair, in an order that does not depend on who compared it.
    """
    blocks = {
        row["block"]: NamedBlock.of(row, len(comparison.by_selectivity))
        for batch in batches
        for row in batch.to_pylist()
    }
    named = [(blocks[left], blocks[right]) for left, right in in_turns(pairs)]
    jobs = [(left.block, right.block) for left, right in named]
    limit, gpu = MatchLimit(comparison.most), gpu_for(comparison)
    on_core = limit.limited(lambda job: comparison.compare(*job))
    done = execute_all(jobs, on_core, cores, lambda: limit.limited(gpu()))
    for (left, right), compared in zip(named, done, strict=True):
        yield from to_record_batches(left, right, compared)


def in_turns(pairs: Sequence[tuple[NameT, NameT]]) -> list[tuple[NameT, NameT]]:
    """Sort distinct pairs so that neighbours share one of their two names, where possible.

    All partners of a left name follow each other. The first is the partner before it, if it is
    among them; the last is one that the next left name has, too.
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
) -> list[DoneT]:
    """Execute jobs on a device and on cores.

    A device that fails returns its job to the queue, and is not used again: the log says so, and
    cores do the rest. It takes its first job before any core takes one.

    Args:
        jobs: Of about a second each: so long it takes to stop.
        on_core: Executes a job; called by several threads at the same time.
        cores: The number of these threads; 0: the device does all that it can.
        opened: Opens the device, in the one thread that uses it, and returns a function that
            executes a job there; if it raises anything, the device is not used again. None: there
            is none.

    Returns:
        The result of each job, in their order.

    Raises:
        Exception: The error of the first job that failed on a core; no further job was begun then.
    """
    return _Queue(jobs, on_core).emptied(cores, opened)


class _Queue(Generic[JobT, DoneT]):
    def __init__(self, jobs: Sequence[JobT], on_core: Callable[[JobT], DoneT]) -> None:
        self._jobs = jobs
        self._on_core = on_core
        self._waiting = deque(range(len(jobs)))  # whose own methods are atomic
        self._done: dict[int, DoneT] = {}

    def emptied(
        self, cores: int, opened: Callable[[], Callable[[JobT], DoneT]] | None
    ) -> list[DoneT]:
        with ThreadPoolExecutor(cores + 1, thread_name_prefix="hybrid") as pool:
            futures: list[Future[None]] = []
            if opened is not None and (first := self._taken(self._waiting.popleft)) is not None:
                futures.append(pool.submit(self._device, opened, first))
            futures += [pool.submit(self._core) for _ in range(cores)]
            try:
                for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                    future.result()
                self._core()  # what a device gave back when no core was left
            except BaseException:
                # Threads end after their present job: the queue has no further one.
                self._waiting.clear()
                raise
        return [self._done[number] for number in range(len(self._jobs))]

    def _core(self) -> None:
        while (number := self._taken(self._waiting.pop)) is not None:
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
