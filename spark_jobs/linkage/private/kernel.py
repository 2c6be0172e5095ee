"""Compares records with tiles of others; a bound on the overlap excludes most after a few words.

A tile holds 64 records of nearly equal cardinality, word by word, so that a processor compares one
record with several at once. After each group of words the overlap of a pair is at most the bits
shared so far plus the smaller rest of both; a tile in which no pair can reach the minimum overlap
is skipped. That is the position filter (docs/papers/pprl.md, 2.2) with a fixed cut instead of the
prefixes'.

All numbers are integers. The matches equal brute force: the tests compare every combination.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from spark_jobs.linkage.compiled import compiled, set_bits
from spark_jobs.linkage.private.vectors import GROUP, Numbers, Words

__all__ = ["TILE", "Bounds", "Rows", "Tiles", "find_best", "find_matches"]

TILE: Final = 64
"""Records of a tile."""

_MAX_REMAINING: Final = 8
"""Maximum remaining pairs of a tile that are finished one by one; for more, groups are faster."""


class Rows(NamedTuple):
    """Records, row by row.

    Attributes:
        words: Records x words, sorted by cardinality.
        rests: Records x groups: set bits after each group of words.
        sizes: Cardinalities.
    """

    words: Words
    rests: Numbers
    sizes: Numbers


class Tiles(NamedTuple):
    """The other records, word by word, sorted by cardinality and padded with empty records.

    Attributes:
        words: Tiles x words x 64.
        rests: Tiles x groups x 64: set bits after each group of words.
        sizes: Tiles x 64: cardinalities; empty records repeat the last one.
        ranks: Tiles x 64: of two equally similar records the one of lower rank comes first.
    """

    words: Words
    rests: Numbers
    sizes: Numbers
    ranks: Numbers


class Bounds(NamedTuple):
    """Bounds of a threshold: minimum overlap by the sum of cardinalities, and records by tile.

    A tile is compared with records from `low`, by its minimum cardinality, to before `high`, by its
    maximum.
    """

    overlap: Numbers
    low: Numbers
    high: Numbers


@compiled
def _scan(
    record: Any, rest: Any, tile: Any, rests: Any, min_overlap: int, overlaps: Any
) -> tuple[int, int]:
    """Count common bits group by group until few pairs can still reach the minimum overlap.

    The common bits of each pair go to `overlaps`.

    Returns:
        The number of groups counted, and the number of remaining pairs.
    """
    own_rest, remaining = rest[0], 0
    w0, w1, w2, w3 = record[0], record[1], record[2], record[3]
    for j in range(TILE):  # the first group separately: it excludes most pairs
        common = set_bits(w0 & tile[0, j]) + set_bits(w1 & tile[1, j])
        common += set_bits(w2 & tile[2, j]) + set_bits(w3 & tile[3, j])
        overlaps[j] = common
        remaining += common + min(own_rest, rests[0, j]) >= min_overlap
    group = 1
    while remaining > _MAX_REMAINING and group < len(rest):
        at, own_rest, remaining = group * GROUP, rest[group], 0
        w0, w1, w2, w3 = record[at], record[at + 1], record[at + 2], record[at + 3]
        for j in range(TILE):
            common = set_bits(w0 & tile[at, j]) + set_bits(w1 & tile[at + 1, j])
            common += set_bits(w2 & tile[at + 2, j]) + set_bits(w3 & tile[at + 3, j])
            overlaps[j] += common
            remaining += overlaps[j] + min(own_rest, rests[group, j]) >= min_overlap
        group += 1
    return group, remaining


@compiled
def _finish(record: Any, tile: Any, j: int, groups: int, common: int) -> int:
    """Add the common bits of the remaining groups."""
    for word in range(groups * GROUP, len(record)):
        common += set_bits(record[word] & tile[word, j])
    return common


@compiled
def find_matches(
    rows: Any, tiles: Any, bounds: Any, begin: Any, matches: Any
) -> tuple[int, int, int, int]:
    """Find the pairs with at least the minimum overlap, starting at a tile and a record.

    Pairs go to `matches`: record, other, overlap.

    Returns:
        The number of pairs, the number of pairs whose overlap was counted completely, and the tile
        and record to continue at: the number of tiles at the end, otherwise `matches` is full.
    """
    overlaps = np.empty(TILE, dtype=np.int64)
    count = full_counts = 0
    for t in range(begin[0], len(tiles.words)):
        tile, rests, sizes = tiles.words[t], tiles.rests[t], tiles.sizes[t]
        first = bounds.low[sizes[0]]
        if t == begin[0]:
            first = max(first, begin[1])
        for i in range(first, bounds.high[sizes[TILE - 1]]):
            # Room for a whole tile: the next call continues at a record, not inside a tile.
            if count + TILE > len(matches):
                return count, full_counts, t, i
            # For the minimum cardinality of the tile: a lower bound for all its pairs.
            min_overlap = bounds.overlap[rows.sizes[i] + sizes[0]]
            groups, remaining = _scan(
                rows.words[i], rows.rests[i], tile, rests, min_overlap, overlaps
            )
            if remaining == 0:
                continue
            for j in range(TILE):
                if overlaps[j] + min(rows.rests[i, groups - 1], rests[groups - 1, j]) < min_overlap:
                    continue
                full_counts += 1
                common = _finish(rows.words[i], tile, j, groups, overlaps[j])
                if common >= bounds.overlap[rows.sizes[i] + sizes[j]]:
                    matches[count, 0], matches[count, 1], matches[count, 2] = (
                        i,
                        t * TILE + j,
                        common,
                    )
                    count += 1
    return count, full_counts, len(tiles.words), 0


@compiled
def _ranks_after(common: int, union: int, rank: int, partners: Any) -> bool:
    """Return whether a pair ranks after a partner: by similarity, then by the other's rank."""
    # Compare two fractions by cross-multiplication, which is exact in integers.
    ours: int = common * partners[2]
    theirs: int = partners[1] * union
    higher_rank: bool = rank > partners[3]
    return ours < theirs or (ours == theirs and higher_rank)


@compiled
def _keep(partners: Any, other: int, common: int, union: int, rank: int) -> None:
    """Insert a pair into the best partners of a record, in place of the last one."""
    at = len(partners) - 1
    while at > 0 and (
        partners[at - 1, 2] == 0 or not _ranks_after(common, union, rank, partners[at - 1])
    ):
        partners[at] = partners[at - 1]
        at -= 1
    partners[at, 0], partners[at, 1], partners[at, 2], partners[at, 3] = other, common, union, rank


@compiled
def _offer(partners: Any, other: int, common: int, union: int, rank: int) -> None:
    """Keep a pair if it is among the best partners."""
    last = partners[len(partners) - 1]
    if last[2] == 0 or not _ranks_after(common, union, rank, last):
        _keep(partners, other, common, union, rank)


@compiled
def find_best(rows: Any, tiles: Any, bounds: Any, partners: Any) -> int:
    """Find the best partners of each record among pairs with at least the minimum overlap.

    They go to `partners`: records x partners x (other, overlap, union, rank); a union of 0 means no
    partner.

    Returns:
        The number of pairs whose overlap was counted completely.
    """
    overlaps = np.empty(TILE, dtype=np.int64)
    full_counts = 0
    for t in range(len(tiles.words)):
        tile, rests, sizes = tiles.words[t], tiles.rests[t], tiles.sizes[t]
        for i in range(bounds.low[sizes[0]], bounds.high[sizes[TILE - 1]]):
            total = rows.sizes[i] + sizes[0]
            min_overlap, last = bounds.overlap[total], partners[i, partners.shape[1] - 1]
            if last[2] > 0:  # the same similarity needs overlap / (overlap + union) of the sum
                min_overlap = max(min_overlap, -(-last[1] * total // (last[1] + last[2])))
            groups, remaining = _scan(
                rows.words[i], rows.rests[i], tile, rests, min_overlap, overlaps
            )
            if remaining == 0:
                continue
            for j in range(TILE):
                if overlaps[j] + min(rows.rests[i, groups - 1], rests[groups - 1, j]) < min_overlap:
                    continue
                full_counts += 1
                common = _finish(rows.words[i], tile, j, groups, overlaps[j])
                total = rows.sizes[i] + sizes[j]
                if common >= bounds.overlap[total]:
                    _offer(partners[i], t * TILE + j, common, total - common, tiles.ranks[t, j])
    return full_counts
