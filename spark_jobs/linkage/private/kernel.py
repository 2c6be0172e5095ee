"""Compares records with tiles of others: bounds the overlap after a few words, mostly ends there.

A tile holds 64 records of nearly equal cardinality, word by word, so that a processor compares one
record with several at once. After each group of words the overlap of a pair is at most what they
shared so far plus the smaller rest of both; a tile in which no pair can reach the least overlap is
left. That is the position filter (docs/papers/pprl.md, 2.2) with a fixed cut instead of the
prefixes'.

All numbers are integers. The matches equal brute force: the tests compare every combination.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from spark_jobs.linkage.compiled import compiled, set_bits
from spark_jobs.linkage.private.vectors import GROUP, Numbers, Words

__all__ = ["TILE", "Bounds", "Rows", "Tiles", "best", "beyond"]

TILE: Final = 64
"""Records of a tile."""

_FEW_PAIRS: Final = 8
"""With more pairs left in a tile, finishing them one by one costs more."""


class Rows(NamedTuple):
    """Records one by one.

    Attributes:
        words: Records x words, sorted by cardinality.
        rests: Records x groups: set bits after each group of words.
        sizes: Cardinalities.
    """

    words: Words
    rests: Numbers
    sizes: Numbers


class Tiles(NamedTuple):
    """The others, word by word, sorted by cardinality and filled up with empty ones.

    Attributes:
        words: Tiles x words x 64.
        rests: Tiles x groups x 64: set bits after each group of words.
        sizes: Tiles x 64: cardinalities; those of empty ones repeat the last.
        ranks: Tiles x 64: of two equally similar ones the one of lower rank comes first.
    """

    words: Words
    rests: Numbers
    sizes: Numbers
    ranks: Numbers


class Bounds(NamedTuple):
    """Bounds of a threshold: least overlap by the sum of cardinalities, and records by tile.

    A tile meets records from `low`, by its least cardinality, to before `high`, by its greatest.
    """

    overlap: Numbers
    low: Numbers
    high: Numbers


@compiled
def _scan(
    record: Any, rest: Any, tile: Any, rests: Any, least: int, overlaps: Any
) -> tuple[int, int]:
    """Count common bits group by group until few pairs are left that can reach the least overlap.

    The common bits of each pair go to `overlaps`.

    Returns:
        How many groups were counted, and how many pairs are left.
    """
    own, left = rest[0], 0
    w0, w1, w2, w3 = record[0], record[1], record[2], record[3]
    for j in range(TILE):  # the first group by itself: most pairs end here
        common = set_bits(w0 & tile[0, j]) + set_bits(w1 & tile[1, j])
        common += set_bits(w2 & tile[2, j]) + set_bits(w3 & tile[3, j])
        overlaps[j] = common
        left += common + min(own, rests[0, j]) >= least
    group = 1
    while left > _FEW_PAIRS and group < len(rest):
        at, own, left = group * GROUP, rest[group], 0
        w0, w1, w2, w3 = record[at], record[at + 1], record[at + 2], record[at + 3]
        for j in range(TILE):
            common = set_bits(w0 & tile[at, j]) + set_bits(w1 & tile[at + 1, j])
            common += set_bits(w2 & tile[at + 2, j]) + set_bits(w3 & tile[at + 3, j])
            overlaps[j] += common
            left += overlaps[j] + min(own, rests[group, j]) >= least
        group += 1
    return group, left


@compiled
def _finished(record: Any, tile: Any, j: int, groups: int, common: int) -> int:
    """Add the common bits of the groups that were not counted."""
    for word in range(groups * GROUP, len(record)):
        common += set_bits(record[word] & tile[word, j])
    return common


@compiled
def beyond(
    rows: Any, tiles: Any, bounds: Any, begin: Any, matches: Any
) -> tuple[int, int, int, int]:
    """Find the pairs whose overlap is the least one or more, beginning at a tile and a record.

    Pairs go to `matches`: record, other, overlap.

    Returns:
        Pairs found, pairs whose overlap was counted whole, and where to continue: the number of
        tiles if nothing is left, otherwise `matches` is full.
    """
    overlaps = np.empty(TILE, dtype=np.int64)
    count = whole = 0
    for t in range(begin[0], len(tiles.words)):
        tile, rests, sizes = tiles.words[t], tiles.rests[t], tiles.sizes[t]
        first = bounds.low[sizes[0]]
        if t == begin[0]:
            first = max(first, begin[1])
        for i in range(first, bounds.high[sizes[TILE - 1]]):
            # Room for a whole tile: the next call continues at a record, not inside of a tile.
            if count + TILE > len(matches):
                return count, whole, t, i
            # For the least cardinality of the tile: a lower bound for all of its pairs.
            least = bounds.overlap[rows.sizes[i] + sizes[0]]
            groups, left = _scan(rows.words[i], rows.rests[i], tile, rests, least, overlaps)
            if left == 0:
                continue
            for j in range(TILE):
                if overlaps[j] + min(rows.rests[i, groups - 1], rests[groups - 1, j]) < least:
                    continue
                whole += 1
                common = _finished(rows.words[i], tile, j, groups, overlaps[j])
                if common >= bounds.overlap[rows.sizes[i] + sizes[j]]:
                    matches[count, 0], matches[count, 1], matches[count, 2] = (
                        i,
                        t * TILE + j,
                        common,
                    )
                    count += 1
    return count, whole, len(tiles.words), 0


@compiled
def _less_alike(common: int, union: int, rank: int, partners: Any) -> bool:
    """Whether a pair ranks after one of the partners: by similarity, then by the other's rank."""
    # Two fractions, compared by cross-multiplication: exact in integers.
    ours: int = common * partners[2]
    theirs: int = partners[1] * union
    later: bool = rank > partners[3]
    return ours < theirs or (ours == theirs and later)


@compiled
def _keep(partners: Any, other: int, common: int, union: int, rank: int) -> None:
    """Insert a pair into the best of a record; it replaces the last one."""
    at = len(partners) - 1
    while at > 0 and (
        partners[at - 1, 2] == 0 or not _less_alike(common, union, rank, partners[at - 1])
    ):
        partners[at] = partners[at - 1]
        at -= 1
    partners[at, 0], partners[at, 1], partners[at, 2], partners[at, 3] = other, common, union, rank


@compiled
def _offer(partners: Any, other: int, common: int, union: int, rank: int) -> None:
    """Keep a pair if it is among the best."""
    last = partners[len(partners) - 1]
    if last[2] == 0 or not _less_alike(common, union, rank, last):
        _keep(partners, other, common, union, rank)


@compiled
def best(rows: Any, tiles: Any, bounds: Any, partners: Any) -> int:
    """Find the best partners of each record among those whose overlap is the least one or more.

    They go to `partners`: records x partners x (other, overlap, union, rank); a union of 0 means no
    partner.

    Returns:
        Pairs whose overlap was counted whole.
    """
    overlaps = np.empty(TILE, dtype=np.int64)
    whole = 0
    for t in range(len(tiles.words)):
        tile, rests, sizes = tiles.words[t], tiles.rests[t], tiles.sizes[t]
        for i in range(bounds.low[sizes[0]], bounds.high[sizes[TILE - 1]]):
            total = rows.sizes[i] + sizes[0]
            least, last = bounds.overlap[total], partners[i, partners.shape[1] - 1]
            if last[2] > 0:  # the same similarity needs overlap / (overlap + union) of the sum
                least = max(least, -(-last[1] * total // (last[1] + last[2])))
            groups, left = _scan(rows.words[i], rows.rests[i], tile, rests, least, overlaps)
            if left == 0:
                continue
            for j in range(TILE):
                if overlaps[j] + min(rows.rests[i, groups - 1], rests[groups - 1, j]) < least:
                    continue
                whole += 1
                common = _finished(rows.words[i], tile, j, groups, overlaps[j])
                total = rows.sizes[i] + sizes[j]
                if common >= bounds.overlap[total]:
                    _offer(partners[i], t * TILE + j, common, total - common, tiles.ranks[t, j])
    return whole
