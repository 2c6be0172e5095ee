"""A batch of tasks in one process, which has the GPU and the cores of its machine to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from spark_jobs.linkage.private.blocks import BlockComparison, BlockMatches, RecordBlock
from spark_jobs.linkage.private.gpu.hybrid import Device, execute_all, in_turns
from spark_jobs.linkage.private.matches import NamedBlock, to_record_batch

__all__ = ["Pair", "compare_batch", "gpu_for", "on_core"]

Pair: TypeAlias = tuple[RecordBlock, RecordBlock]


class _Gpu:
    def __init__(self, comparison: BlockComparison) -> None:
        from spark_jobs.linkage.private.gpu.device import OnGpu  # noqa: PLC0415 - needs CUDA

        self._gpu = OnGpu(comparison)

    def do(self, job: Pair) -> BlockMatches:
        return self._gpu.compare(*job)


def gpu_for(comparison: BlockComparison) -> Callable[[], Device[Pair, BlockMatches]]:
    """Return what opens the GPU of this machine, in the thread that is to use it."""
    return lambda: _Gpu(comparison)


def on_core(comparison: BlockComparison) -> Callable[[Pair], BlockMatches]:
    """Return what compares two blocks on a core, without the interpreter's lock."""
    return lambda job: comparison.compare(*job)


def compare_batch(
    batches: Iterable[pa.RecordBatch],
    comparison: BlockComparison,
    pairs: Sequence[tuple[str, str]],
    cores: int,
) -> Iterator[pa.RecordBatch]:
    """Compare pairs of blocks on the GPU and the cores.

    Args:
        batches: The blocks, each once: ``block``, ``party``, ``ids``, ``ranks``, ``words``.
        comparison: How.
        pairs: Names of blocks.
        cores: How many cores take part.

    Returns:
        Rows of `RESULT` for each pair, in an order that does not tell who compared it.
    """
    blocks = {
        row["block"]: NamedBlock.of(row, len(comparison.by_selectivity))
        for batch in batches
        for row in batch.to_pylist()
    }
    named = [(blocks[left], blocks[right]) for left, right in in_turns(pairs)]
    jobs = [(left.block, right.block) for left, right in named]
    done = execute_all(jobs, on_core(comparison), cores, gpu_for(comparison))
    for (left, right), compared in zip(named, done, strict=True):
        yield to_record_batch(left, right, compared)
