"""Executes a batch of tasks in one process: one queue of jobs for a GPU and the machine's cores.

The GPU takes jobs from the front, where neighbours share a block, so that only the other block has
to be sent to the GPU. Cores take from the back, because they need no copies. Each job is executed
once, and its result does not depend on the processor (docs/papers/pprl.md, 2.4).
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
ResultT = TypeVar("ResultT")


def gpu_for(comparison: BlockComparison) -> Callable[[], Callable[[Pair], BlockMatches]]:
    """Return a function that opens this machine's GPU; call it in the thread that uses the GPU."""

    def open_device() -> Callable[[Pair], BlockMatches]:
        from spark_jobs.linkage.private.gpu.device import OnGpu  # noqa: PLC0415 - needs CUDA

        gpu = OnGpu(comparison)
        return lambda job: gpu.compare(*job)

    return open_device


def compare_batch(
    batches: Iterable[pa.RecordBatch],
    comparison: BlockComparison,
    pairs: Sequence[tuple[str, str]],
    cores: int,
) -> Iterator[pa.RecordBatch]:
    """Compare pairs of blocks, by their names, on the GPU and the cores.

    Each block occurs once: ``block``, ``party``, ``ids``, ``ranks``, ``words``.

    Returns:
        Rows of `RESULT` for each pair, in an order that does not depend on the processor.
    """
    blocks = {
        row["block"]: NamedBlock.of(row, len(comparison.by_selectivity))
        for batch in batches
        for row in batch.to_pylist()
    }
    named = [(blocks[left], blocks[right]) for left, right in in_turns(pairs)]
    jobs = [(left.block, right.block) for left, right in named]
    limit, gpu = MatchLimit(comparison.max_matches), gpu_for(comparison)
    on_core = limit.wrap(lambda job: comparison.compare(*job))
    results = execute_all(jobs, on_core, cores, lambda: limit.wrap(gpu()))
    for (left, right), matches in zip(named, results, strict=True):
        yield from to_record_batches(left, right, matches)


def in_turns(pairs: Sequence[tuple[NameT, NameT]]) -> list[tuple[NameT, NameT]]:
    """Sort distinct pairs so that neighbours share one of their two names, where possible.

    The partners of a left name are adjacent. The previous partner comes first if it is among them;
    a partner shared with the next left name comes last.
    """
    rows: dict[NameT, list[NameT]] = {}
    for left, right in pairs:
        rows.setdefault(left, []).append(right)
    lefts, ordered = list(rows), list[tuple[NameT, NameT]]()
    for at, left in enumerate(lefts):
        previous = {ordered[-1][1]} if ordered else set()
        next_ = set(rows[lefts[at + 1]]) if at + 1 < len(lefts) else set()
        rights = sorted(rows[left], key=lambda right: (right not in previous, right in next_))
        ordered += [(left, right) for right in rights]
    return ordered


def execute_all(
    jobs: Sequence[JobT],
    on_core: Callable[[JobT], ResultT],
    cores: int,
    open_device: Callable[[], Callable[[JobT], ResultT]] | None = None,
) -> list[ResultT]:
    """Execute jobs on a device and on cores.

    A failed device returns its job to the queue and is not used again: this is logged, and cores
    execute the remaining jobs. The device takes its first job before any core takes one.

    Args:
        jobs: Jobs of about a second each, which bounds the time to stop.
        on_core: Executes a job; called by several threads at the same time.
        cores: The number of these threads; 0: the device executes all jobs unless it fails.
        open_device: Opens the device in the one thread that uses it, and returns a function that
            executes a job there; after any exception the device is not used again. None: no device.

    Returns:
        The results in the order of the jobs.

    Raises:
        Exception: The error of the first job that failed on a core; no job starts after it.
    """
    return _Queue(jobs, on_core).run(cores, open_device)


class _Queue(Generic[JobT, ResultT]):
    def __init__(self, jobs: Sequence[JobT], on_core: Callable[[JobT], ResultT]) -> None:
        self._jobs = jobs
        self._on_core = on_core
        self._waiting = deque(range(len(jobs)))  # its methods are atomic
        self._results: dict[int, ResultT] = {}

    def run(
        self, cores: int, open_device: Callable[[], Callable[[JobT], ResultT]] | None
    ) -> list[ResultT]:
        with ThreadPoolExecutor(cores + 1, thread_name_prefix="hybrid") as pool:
            futures: list[Future[None]] = []
            if open_device is not None and (first := self._take(self._waiting.popleft)) is not None:
                futures.append(pool.submit(self._device, open_device, first))
            futures += [pool.submit(self._core) for _ in range(cores)]
            try:
                for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                    future.result()
                self._core()  # a job that the device returned after all cores ended
            except BaseException:
                # Threads end after their current job, because the queue is empty.
                self._waiting.clear()
                raise
        return [self._results[number] for number in range(len(self._jobs))]

    def _core(self) -> None:
        while (number := self._take(self._waiting.pop)) is not None:
            self._results[number] = self._on_core(self._jobs[number])

    def _device(self, open_device: Callable[[], Callable[[JobT], ResultT]], first: int) -> None:
        number: int | None = first
        try:
            execute = open_device()
            while number is not None:
                self._results[number] = execute(self._jobs[number])
                number = self._take(self._waiting.popleft)
        except Exception as error:  # noqa: BLE001 - cores replace a failed device
            assert number is not None
            self._waiting.appendleft(number)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            _log.warning("the GPU cannot be used, the cores continue without it: %s", reason)

    @staticmethod
    def _take(take: Callable[[], int]) -> int | None:
        try:
            return take()
        except IndexError:
            return None
