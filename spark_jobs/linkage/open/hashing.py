"""Spark's ``xxhash64`` of rows, so that records have the same row ids and blocks on both engines.

The seed of each value is the hash of the previous values; null keeps the hash. The function is
XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) of the bytes of a text, of four bytes
of an int and eight of a long.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.strings import Rows

__all__ = ["Hashes", "initial_hashes", "with_ints", "with_longs", "with_texts"]

Hashes: TypeAlias = NDArray[np.uint64]

_SEED: Final = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def initial_hashes(rows: int) -> Hashes:
    """Return the hashes before any value: the seed."""
    return np.full(rows, _SEED, np.uint64)


def with_texts(hashes: Hashes, texts: pa.Array) -> Hashes:
    column = texts.cast(pa.large_string())
    _, ends, data = column.buffers()
    starts = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    out: Hashes = _hash_rows(hashes, np.frombuffer(data or b"\0", np.uint8), starts, valid)
    return out


def with_longs(hashes: Hashes, values: Rows) -> Hashes:
    return _with_numbers(hashes, values.astype("<i8"))


def with_ints(hashes: Hashes, values: NDArray[np.int32]) -> Hashes:
    return _with_numbers(hashes, values.astype("<i4"))


def _with_numbers(hashes: Hashes, values: NDArray[Any]) -> Hashes:
    size, count = values.dtype.itemsize, len(values)
    starts, valid = np.arange(count + 1) * size, np.ones(count, np.bool_)
    out: Hashes = _hash_rows(hashes, values.view(np.uint8), starts, valid)
    return out


@compiled
def _hash_rows(seeds: Any, data: Any, starts: Any, valid: Any) -> Any:
    out = seeds.copy()
    for row in range(len(seeds)):
        if valid[row]:
            out[row] = _xxh64(data, starts[row], starts[row + 1], seeds[row])
    return out


@compiled
def _xxh64(data: Any, at: int, end: int, seed: Any) -> Any:
    length = np.uint64(end - at)
    if end - at >= 32:  # noqa: PLR2004 - a stripe of four lanes
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            a = _round(a, _word(data, at, 8))
            b = _round(b, _word(data, at + 8, 8))
            c = _round(c, _word(data, at + 16, 8))
            d = _round(d, _word(data, at + 24, 8))
            at += 32
        acc = _rotate_left(a, 1) + _rotate_left(b, 7) + _rotate_left(c, 12) + _rotate_left(d, 18)
        for lane in (a, b, c, d):
            acc = (acc ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        acc = seed + _P5
    acc += length
    while at + 8 <= end:
        acc = _rotate_left(acc ^ _round(np.uint64(0), _word(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        acc = _rotate_left(acc ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        acc = _rotate_left(acc ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    acc = (acc ^ (acc >> np.uint64(33))) * _P2
    acc = (acc ^ (acc >> np.uint64(29))) * _P3
    return acc ^ (acc >> np.uint64(32))


@compiled
def _round(lane: Any, word: Any) -> Any:
    return _rotate_left(lane + word * _P2, 31) * _P1


@compiled
def _rotate_left(word: Any, by: int) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled
def _word(data: Any, at: int, size: int) -> Any:
    """Return the little-endian number of some bytes."""
    word = np.uint64(0)
    for byte in range(size):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return word
