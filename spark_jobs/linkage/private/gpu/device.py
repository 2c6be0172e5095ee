"""Compares blocks on a GPU: copies blocks to the device, launches the kernel, returns its pairs.

The result is that of `BlockComparison.compare`, in the same order; only the number of pairs whose
overlap was counted completely depends on the processor.
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
from spark_jobs.linkage.private.gpu.kernel import (
    FOUND,
    THREADS,
    TILE_RECORDS,
    WHOLE,
    cuda,
    find_matches,
)
from spark_jobs.linkage.private.kernel import TILE
from spark_jobs.linkage.private.vectors import Numbers

__all__ = ["MAX_ROOM", "ROOM", "BlockCopy", "OnGpu"]

ROOM: Final = 1 << 16
"""The initial room for pairs, and its growth step."""

MAX_ROOM: Final = 1 << 24
"""The maximum room for pairs: 192 MiB."""

cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small blocks are not worth a warning


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block, and its copy on the device: words and rests, word by word, and cardinalities."""

    block: RecordBlock
    words: Any
    rests: Any
    sizes: Any


class OnGpu:
    """Compares blocks on this thread's GPU; the copies of the last two blocks stay there.

    One thread must create and use it, because the device memory belongs to the thread. The paper's
    filters are not supported.

    Attributes:
        found: The buffer for pairs on the device; grows with the number of pairs.
        copies: The copies of both blocks on the device.

    Raises:
        Exception: Any CUDA error: there is no device, or its memory is full.
    """

    def __init__(self, comparison: BlockComparison) -> None:
        self._comparison = comparison
        self._overlap = _send(comparison.limits.overlap)
        self.copies: tuple[BlockCopy, ...] = ()
        self.found = cuda.device_array((ROOM, 3), np.int32)

    def compare(self, left: RecordBlock, right: RecordBlock) -> BlockMatches:
        """Compare each record of a block with each record of another block.

        With more pairs than `MAX_ROOM`, the processor's kernel repeats the comparison: it returns
        its pairs in batches, or keeps only the best partners.

        Raises:
            Exception: Any CUDA error; this object is unusable afterwards.
        """
        tally = self._comparison.count_pairs(left, right)
        if not tally.after_length:
            return self._comparison.compare(left, right)
        copies = self._copy_blocks(left, right)
        low, high = self._comparison.window(right.sizes)
        windows = (_send(low[left.sizes]), _send(high[left.sizes]))
        counts = self._launch(copies, windows)
        if counts[FOUND] > MAX_ROOM:
            return self._comparison.compare(left, right)
        pairs = _sort_pairs(self.found[: counts[FOUND]].copy_to_host() if counts[FOUND] else None)
        if self._comparison.top is not None:
            pairs = best_of(pairs, left, right, self._comparison.top)
        tally.after_prefix = tally.after_length
        tally.after_position = int(counts[WHOLE])
        tally.matches, tally.on_gpu = len(pairs), tally.pairs
        return BlockMatches(pairs, tally)

    def _copy_blocks(self, left: RecordBlock, right: RecordBlock) -> tuple[BlockCopy, ...]:
        """Return both blocks' copies; reuse copies on the device, free unused ones."""
        cached = {id(copy.block): copy for copy in self.copies}
        self.copies = tuple(cached.get(id(block)) or self._copy(block) for block in (left, right))
        return self.copies

    def _copy(self, block: RecordBlock) -> BlockCopy:
        words = block.words[:, self._comparison.by_selectivity]
        device_words = cuda.to_device(np.ascontiguousarray(words.T))
        return BlockCopy(block, device_words, _send(rests(words).T), _send(block.sizes))

    def _launch(self, copies: tuple[BlockCopy, ...], windows: tuple[Any, Any]) -> Numbers:
        """Run the kernel; retry once with more room if needed and `MAX_ROOM` allows it."""
        one, other = copies
        grid = (-(-len(one.block.sizes) // THREADS), -(-len(other.block.sizes) // TILE_RECORDS))
        while True:
            counts = cuda.to_device(np.zeros(2, dtype=np.int32))
            find_matches[grid, THREADS](
                one.words, one.rests, one.sizes, other.words, other.rests, other.sizes,
                self._overlap, *windows, self.found, counts,
            )  # fmt: skip
            # The kernel also counts the pairs without room, so one retry is enough.
            numbers: Numbers = counts.copy_to_host()
            if numbers[FOUND] <= self.found.shape[0] or numbers[FOUND] > MAX_ROOM:
                return numbers
            rows = -(-int(numbers[FOUND]) // ROOM) * ROOM
            self.found = cuda.device_array((rows, 3), np.int32)


def _send(numbers: Numbers) -> Any:
    return cuda.to_device(np.ascontiguousarray(numbers, dtype=np.int32))


def _sort_pairs(found: Any) -> Numbers:
    """Sort pairs into the order of the processor's kernel: tile by tile, record by record."""
    if found is None:
        return np.empty((0, 3), dtype=np.int64)
    i, j, _ = found.T
    return np.asarray(found[np.lexsort((j, i, j // TILE))], dtype=np.int64)
