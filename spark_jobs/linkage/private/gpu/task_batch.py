"""A wave of tasks in one process, which has the GPU and the cores of its machine to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from spark_jobs.linkage.private.blocks import Block, Compared, Comparison
from spark_jobs.linkage.private.gpu.hybrid import Device, execute_all, in_turns
from spark_jobs.linkage.private.matches import Named, told

__all__ = ["Pair", "compared_together", "gpu_for", "on_core"]

Pair: TypeAlias = tuple[Block, Block]


class _Gpu:
    def __init__(self, comparison: Comparison) -> None:
        from spark_jobs.linkage.private.gpu.device import OnGpu  # noqa: PLC0415 - needs CUDA

        self._gpu = OnGpu(comparison)

    def do(self, job: Pair) -> Compared:
        return self._gpu.compare(*job)


def gpu_for(comparison: Comparison) -> Callable[[], Device[Pair, Compared]]:
    """Return what opens the GPU of this machine, in the thread that is to use it."""
    return lambda: _Gpu(comparison)


def on_core(comparison: Comparison) -> Callable[[Pair], Compared]:
    """Return what compares two blocks on a core, without the interpreter's lock."""
    return lambda job: comparison.compare(*job)


def compared_together(
    batches: Iterable[pa.RecordBatch],
    comparison: Comparison,
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
        Rows of `FOUND` for each pair, in an order that does not tell who compared it.
    """
    blocks = {
        row["block"]: Named.of(row, len(comparison.telling))
        for batch in batches
        for row in batch.to_pylist()
    }
    named = [(blocks[left], blocks[right]) for left, right in in_turns(pairs)]
    jobs = [(left.block, right.block) for left, right in named]
    done = execute_all(jobs, on_core(comparison), cores, gpu_for(comparison))
    for (left, right), compared in zip(named, done, strict=True):
        yield told(left, right, compared)
