"""The kernel of `private.kernel` for CUDA: a thread compares a record with a tile of others.

The threads of a block have consecutive records and the same tile: the first words of the tile's
records are in shared memory, and each thread holds the first words of its own record. Most pairs
are excluded there, by the same bound as on a processor; the few others read more words from global
memory. Words of one position are contiguous, so that neighbouring threads read neighbouring
addresses.

All numbers are integers, and no pair is lost: pairs beyond the available room are also counted.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from numba import int32, uint64

from spark_jobs.linkage.private.vectors import GROUP

__all__ = ["FOUND", "THREADS", "TILE_RECORDS", "WHOLE", "cuda", "find_matches"]

cuda: Final[Any] = import_module("numba.cuda")
"""Numba's module, or that of `numba-cuda`, which replaces it if installed; neither is typed."""

THREADS: Final = 128
"""Threads of a block: records that are compared with the same tile."""

TILE_RECORDS: Final = 64
"""Records of a tile; at most one per thread, because each thread loads one."""

FOUND, WHOLE = 0, 1
"""Indices of the counts: matching pairs, and pairs whose overlap was counted completely."""


def _in_common(one: Any, other: Any) -> Any:
    return int32(cuda.popc(one & other))


_bits = cuda.jit(device=True)(_in_common)


def _count_shared(
    words: Any,
    rests: Any,
    i: Any,
    other_words: Any,
    other_rests: Any,
    j: Any,
    common: Any,
    min_overlap: Any,
) -> Any:
    """Count the shared bits of two records, after `common` bits in the first group of words.

    Returns:
        The overlap, or -1 as soon as `min_overlap` is out of reach.
    """
    for group in range(1, rests.shape[0]):
        for word in range(group * GROUP, (group + 1) * GROUP):
            common += _bits(words[word, i], other_words[word, j])
        if common + min(rests[group, i], other_rests[group, j]) < min_overlap:
            return int32(-1)
    return common


_count_shared_bits = cuda.jit(device=True)(_count_shared)


def _load(
    other_words: Any, other_rests: Any, start: Any, thread: Any, first_words: Any, first_rests: Any
) -> None:
    """Load one record of a tile into shared memory: its first words, and its rest."""
    for word in range(GROUP):
        first_words[word, thread] = other_words[word, start + thread]
    first_rests[thread] = other_rests[0, start + thread]


_load_record = cuda.jit(device=True)(_load)


def _store(found: Any, counts: Any, i: Any, j: Any, common: Any) -> None:
    """Count a pair, and store it if there is room."""
    at = cuda.atomic.add(counts, FOUND, 1)
    if at < found.shape[0]:
        found[at, 0], found[at, 1], found[at, 2] = i, j, common


_store_pair = cuda.jit(device=True)(_store)


def _find_matches(
    words: Any,
    rests: Any,
    sizes: Any,
    other_words: Any,
    other_rests: Any,
    other_sizes: Any,
    overlap: Any,
    low: Any,
    high: Any,
    found: Any,
    counts: Any,
) -> None:
    """Find the pairs with at least the minimum overlap, and at least one common bit.

    The grid is records by `THREADS`, others by `TILE_RECORDS`; all are sorted by cardinality.

    Args:
        words: Words x records, uint64.
        rests: Groups x records, int32: set bits after each group of words.
        sizes: Cardinalities, int32.
        other_words: Words x others, likewise.
        other_rests: Groups x others.
        other_sizes: Cardinalities.
        overlap: Minimum overlap, by the sum of cardinalities.
        low: The first of the others to compare with each record; ascends with the records.
        high: The end of the others to compare.
        found: Output pairs, unordered: record, other, overlap.
        counts: `FOUND` and `WHOLE`; pairs beyond the room are counted, but not stored.
    """
    first_words = cuda.shared.array((GROUP, TILE_RECORDS), uint64)
    first_rests = cuda.shared.array(TILE_RECORDS, int32)
    tile_sizes = cuda.shared.array(TILE_RECORDS, int32)
    thread, head, start = (
        cuda.threadIdx.x,
        cuda.blockIdx.x * THREADS,
        cuda.blockIdx.y * TILE_RECORDS,
    )
    end = min(start + TILE_RECORDS, other_sizes.shape[0])
    last = min(head + THREADS, sizes.shape[0]) - 1
    if low[head] >= end or high[last] <= start:
        return  # cardinalities exclude all pairs of this block and the tile
    if thread < end - start:
        _load_record(other_words, other_rests, start, thread, first_words, first_rests)
        tile_sizes[thread] = other_sizes[start + thread]
    # The tile is complete when every thread has loaded its record.
    cuda.syncthreads()
    i = head + thread
    # Only here, because threads beyond the last record must also load and reach the barrier.
    if i > last:
        return
    w0, w1, w2, w3 = words[0, i], words[1, i], words[2, i], words[3, i]
    size, own_rest, full_counts = sizes[i], rests[0, i], int32(0)
    # For the minimum cardinality of the tile: a lower bound for all its pairs.
    min_overlap = overlap[size + tile_sizes[0]]
    for j in range(max(low[i] - start, 0), min(high[i], end) - start):
        common = _bits(w0, first_words[0, j]) + _bits(w1, first_words[1, j])
        common += _bits(w2, first_words[2, j]) + _bits(w3, first_words[3, j])
        if common + min(own_rest, first_rests[j]) < min_overlap:
            continue
        common = _count_shared_bits(
            words, rests, i, other_words, other_rests, start + j, common, min_overlap
        )
        if common < 0:
            continue
        full_counts += 1
        if common >= max(overlap[size + tile_sizes[j]], int32(1)):
            _store_pair(found, counts, i, start + j, common)
    if full_counts:
        cuda.atomic.add(counts, WHOLE, full_counts)


find_matches = cuda.jit(_find_matches)
"""See `_find_matches`; launched as ``find_matches[(blocks of records, tiles), THREADS](…)``."""
