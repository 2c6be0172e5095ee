"""Comparing blocks on a GPU: what is sent there, kept there, and returned.

The result is that of `BlockComparison.compare`, in the same order; only the number of pairs whose
overlap was counted whole depends on the processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spark_jobs.linkage.private.blocks import (
    BlockComparison,
    BlockMatches,
    RecordBlock,
    best_of,
    rests,
)
from spark_jobs.linkage.private.gpu.kernel import FOUND, OTHERS, THREADS, WHOLE, beyond, cuda
from spark_jobs.linkage.private.kernel import TILE
from spark_jobs.linkage.private.vectors import Numbers

__all__ = ["MOST", "ROOM", "BlockCopy", "OnGpu"]

ROOM: Final = 1 << 16
"""The initial room for pairs, and the step by which it grows."""

MOST: Final = 1 << 24
"""The most room for pairs: 192 MiB."""

cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small blocks are not worth a warning


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block, and its copy on the device: words and rests word by word, and cardinalities."""

    block: RecordBlock
    words: Any
    rests: Any
    sizes: Any


class OnGpu:
    """Compares blocks on the GPU that this thread has; keeps the two of the last comparison there.

    To be made and used by one thread, to which its memory belongs. The comparison is without the
    paper's filters.

    Attributes:
        found: Room for pairs on the device; grows with what is found.
        kept: The copies of both blocks there.

    Raises:
        Exception: Any error of CUDA: there is no such device, or no room left there.
    """

    def __init__(self, comparison: BlockComparison) -> None:
        self._comparison = comparison
        self._overlap = _sent(comparison.limits.overlap)
        self.kept: tuple[BlockCopy, ...] = ()
        self.found = cuda.device_array((ROOM, 3), np.int32)

    def compare(self, left: RecordBlock, right: RecordBlock) -> BlockMatches:
        """Compare each record of a block with each of another.

        Where more is found than there can be room for, the processor's kernel does it: it returns
        its pairs in batches, and if only the best count, it keeps no others.

        Raises:
            Exception: Any error of CUDA; this object cannot be used any more.
        """
        tally = self._comparison.count_pairs(left, right)
        if not tally.after_length:
            return self._comparison.compare(left, right)
        copies = self._copies(left, right)
        low, high = self._comparison.window(right.sizes)
        windows = (_sent(low[left.sizes]), _sent(high[left.sizes]))
        counts = self._launched(copies, windows)
        if counts[FOUND] > MOST:
            return self._comparison.compare(left, right)
        pairs = _in_order(self.found[: counts[FOUND]].copy_to_host() if counts[FOUND] else None)
        if self._comparison.top is not None:
            pairs = best_of(pairs, left, right, self._comparison.top)
        tally.after_prefix = tally.after_length
        tally.after_position = int(counts[WHOLE])
        tally.matches, tally.on_gpu = len(pairs), tally.pairs
        return BlockMatches(pairs, tally)

    def _copies(self, left: RecordBlock, right: RecordBlock) -> tuple[BlockCopy, ...]:
        """Return both blocks' copies: those there are not sent again, unused ones are freed."""
        there = {id(copy.block): copy for copy in self.kept}
        self.kept = tuple(there.get(id(block)) or self._copy(block) for block in (left, right))
        return self.kept

    def _copy(self, block: RecordBlock) -> BlockCopy:
        words = block.words[:, self._comparison.by_selectivity]
        beneath = cuda.to_device(np.ascontiguousarray(words.T))
        return BlockCopy(block, beneath, _sent(rests(words).T), _sent(block.sizes))

    def _launched(self, copies: tuple[BlockCopy, ...], windows: tuple[Any, Any]) -> Numbers:
        """Run the kernel, and once more if there was too little room and `MOST` allows more."""
        one, other = copies
        grid = (-(-len(one.block.sizes) // THREADS), -(-len(other.block.sizes) // OTHERS))
        while True:
            counts = cuda.to_device(np.zeros(2, dtype=np.int32))
            beyond[grid, THREADS](
                one.words, one.rests, one.sizes, other.words, other.rests, other.sizes,
                self._overlap, *windows, self.found, counts,
            )  # fmt: skip
            # The kernel counts all pairs, those without room included: one retry is enough.
            counted: Numbers = counts.copy_to_host()
            if counted[FOUND] <= self.found.shape[0] or counted[FOUND] > MOST:
                return counted
            rows = -(-int(counted[FOUND]) // ROOM) * ROOM
            self.found = cuda.device_array((rows, 3), np.int32)


def _sent(numbers: Numbers) -> Any:
    return cuda.to_device(np.ascontiguousarray(numbers, dtype=np.int32))


def _in_order(found: Any) -> Numbers:
    """Sort pairs in the order of the processor's kernel: tile by tile, record by record."""
    if found is None:
        return np.empty((0, 3), dtype=np.int64)
    i, j, _ = found.T
    return np.asarray(found[np.lexsort((j, i, j // TILE))], dtype=np.int64)
