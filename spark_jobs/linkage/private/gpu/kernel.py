"""The kernel of `private.kernel` for CUDA: a thread compares a record with a tile of others.

The threads of a block have consecutive records, and one tile: the first words of its records are in
the memory that they share, and each thread holds the first words of its own record. Most pairs end
there, by the same bound as on a processor; the few others read their further words from global
memory. Words of one position are contiguous, so that neighbouring threads read neighbouring
addresses.

All numbers are integers, and no pair is lost: those beyond the available room are counted, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from numba import int32, uint64

from spark_jobs.linkage.private.vectors import GROUP

__all__ = ["FOUND", "OTHERS", "THREADS", "WHOLE", "beyond", "cuda"]

cuda: Final[Any] = import_module("numba.cuda")
"""Of Numba, or of `numba-cuda`, which replaces it where it is installed; neither is typed."""

THREADS: Final = 128
"""Of a block: records that are compared with the same tile."""

OTHERS: Final = 64
"""Records of a tile; not more than there are threads, each of which loads one."""

FOUND, WHOLE = 0, 1
"""Indices of the counts: pairs that were found, and pairs whose overlap was counted whole."""


def _in_common(one: Any, other: Any) -> Any:
    return int32(cuda.popc(one & other))


_bits = cuda.jit(device=True)(_in_common)


def _rest(
    words: Any,
    rests: Any,
    i: Any,
    other_words: Any,
    other_rests: Any,
    j: Any,
    common: Any,
    least: Any,
) -> Any:
    """Count what two records share, after `common` bits in the first group of words.

    Returns:
        The overlap, or -1 as soon as the least is out of reach.
    """
    for group in range(1, rests.shape[0]):
        for word in range(group * GROUP, (group + 1) * GROUP):
            common += _bits(words[word, i], other_words[word, j])
        if common + min(rests[group, i], other_rests[group, j]) < least:
            return int32(-1)
    return common


_counted = cuda.jit(device=True)(_rest)


def _load(
    other_words: Any, other_rests: Any, start: Any, thread: Any, first_words: Any, first_rests: Any
) -> None:
    """Load one record of a tile for all threads: its first words, and its rest."""
    for word in range(GROUP):
        first_words[word, thread] = other_words[word, start + thread]
    first_rests[thread] = other_rests[0, start + thread]


_load_record = cuda.jit(device=True)(_load)


def _keep(found: Any, counts: Any, i: Any, j: Any, common: Any) -> None:
    """Count a pair, and keep it if there is room."""
    at = cuda.atomic.add(counts, FOUND, 1)
    if at < found.shape[0]:
        found[at, 0], found[at, 1], found[at, 2] = i, j, common


_keep_pair = cuda.jit(device=True)(_keep)


def _beyond(
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
    """Find the pairs whose overlap is the least one or more; one without common bits is none.

    The grid is records by `THREADS`, others by `OTHERS`; all are sorted by cardinality.

    Args:
        words: Words x records, uint64.
        rests: Groups x records, int32: set bits after each group of words.
        sizes: Cardinalities, int32.
        other_words: Words x others, likewise.
        other_rests: Groups x others.
        other_sizes: Cardinalities.
        overlap: Least overlap, by the sum of cardinalities.
        low: First of the others that a record meets; ascends with the records.
        high: The one behind the last.
        found: Output pairs, in no order: record, other, overlap.
        counts: `FOUND` and `WHOLE`; pairs beyond the room are counted, but not stored.
    """
    first_words = cuda.shared.array((GROUP, OTHERS), uint64)
    first_rests = cuda.shared.array(OTHERS, int32)
    tile_sizes = cuda.shared.array(OTHERS, int32)
    thread, head, start = cuda.threadIdx.x, cuda.blockIdx.x * THREADS, cuda.blockIdx.y * OTHERS
    end = min(start + OTHERS, other_sizes.shape[0])
    last = min(head + THREADS, sizes.shape[0]) - 1
    if low[head] >= end or high[last] <= start:
        return  # by length no record of this block meets the tile
    if thread < end - start:
        _load_record(other_words, other_rests, start, thread, first_words, first_rests)
        tile_sizes[thread] = other_sizes[start + thread]
    # The tile is complete when every thread has loaded its record.
    cuda.syncthreads()
    i = head + thread
    # Only here: threads beyond the last record had to load and to reach the barrier, too.
    if i > last:
        return
    w0, w1, w2, w3 = words[0, i], words[1, i], words[2, i], words[3, i]
    size, own, whole = sizes[i], rests[0, i], int32(0)
    # For the least cardinality of the tile: a lower bound for all of its pairs.
    least = overlap[size + tile_sizes[0]]
    for j in range(max(low[i] - start, 0), min(high[i], end) - start):
        common = _bits(w0, first_words[0, j]) + _bits(w1, first_words[1, j])
        common += _bits(w2, first_words[2, j]) + _bits(w3, first_words[3, j])
        if common + min(own, first_rests[j]) < least:
            continue
        common = _counted(words, rests, i, other_words, other_rests, start + j, common, least)
        if common < 0:
            continue
        whole += 1
        if common >= max(overlap[size + tile_sizes[j]], int32(1)):
            _keep_pair(found, counts, i, start + j, common)
    if whole:
        cuda.atomic.add(counts, WHOLE, whole)


beyond = cuda.jit(_beyond)
"""See `_beyond`; launched as ``beyond[(blocks of records, tiles), THREADS](…)``."""
