"""Blocks of records, and the comparison of two blocks, which is the work of a task.

A block holds records of one owner, sorted by cardinality. The filters determine the kernel that
compares two blocks, but not the pairs that match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, fields
from threading import Lock
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.private.kernel import TILE, Bounds, Rows, Tiles, find_best, find_matches
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.paper_kernel import (
    FilterBounds,
    PrefixedRows,
    filter_pairs,
    prefixes,
)
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import GROUP, Numbers, Words, cardinalities

__all__ = [
    "BY_LENGTH",
    "MATCHES",
    "MAX_MATCHES",
    "PAIRS_AT_ONCE",
    "RESULT",
    "BlockComparison",
    "BlockMatches",
    "MatchLimit",
    "NamedBlock",
    "Pair",
    "PairCounts",
    "RecordBlock",
    "best_of",
    "rests",
    "to_record_batches",
]

BY_LENGTH: Final = Filters(prefix=False, position=False)
"""The fastest filters: the length filter, and the kernel's own bound."""

PAIRS_AT_ONCE: Final = 1 << 16
"""Maximum pairs that a kernel returns at once."""

MAX_MATCHES: Final = 20_000_000
"""Maximum matches of a run: with more, the threshold is useless."""

MATCHES: Final = pa.schema(
    [
        ("left_party", pa.int32()),
        ("left", pa.string()),
        ("right_party", pa.int32()),
        ("right", pa.string()),
        ("overlap", pa.int64()),
        ("union", pa.int64()),
    ]
)
"""A match: two owners, two ids, and the numbers of bits in the intersection and the union."""

RESULT: Final = pa.schema([*MATCHES, ("tally", pa.list_(pa.int64()))])
"""The output of a task: matches, and separate rows with the counts."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Some records of one owner.

    Attributes:
        words: Records x words in the common order, by ascending cardinality.
        sizes: Cardinalities.
        ranks: The ranks of the records by id.
    """

    words: Words
    sizes: Numbers
    ranks: Numbers

    @classmethod
    def of(cls, words: Words) -> tuple[RecordBlock, Numbers]:
        """Sort records, given in the order of ids, by cardinality; also return the permutation."""
        sizes = cardinalities(words)
        order = np.argsort(sizes, kind="stable")
        return cls(words[order], sizes[order], order), order


Pair: TypeAlias = tuple[RecordBlock, RecordBlock]


@dataclass(slots=True)
class PairCounts:
    """Pairs that remain after each step; a skipped step removes none.

    `after_position` counts the pairs whose overlap was counted completely, after the position
    filter or the kernel's bound. The bound differs by kernel, also between GPU and processor.
    """

    pairs: int = 0
    after_length: int = 0
    after_prefix: int = 0
    after_position: int = 0
    matches: int = 0
    on_gpu: int = 0

    def add(self, other: PairCounts) -> None:
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


@dataclass(frozen=True, slots=True)
class BlockMatches:
    """Matching pairs (row of the left, row of the right, overlap), and the counts.

    Beyond the limit there are only counts, and no pairs.
    """

    pairs: Numbers
    tally: PairCounts


def _without_pairs(tally: PairCounts) -> BlockMatches:
    return BlockMatches(np.empty((0, 3), dtype=np.int64), tally)


@dataclass(frozen=True, slots=True)
class BlockComparison:
    """Compares blocks.

    Attributes:
        by_selectivity: The order in which words are compared (`BitOrder.by_selectivity`).
        top: Maximum partners of each record of the left block, ties by rank; None: all.
        max_matches: Maximum matches of all blocks. The comparison of two blocks with more matches
            is abandoned, and their matches are dropped.
    """

    limits: ThresholdTables
    by_selectivity: Numbers
    filters: Filters = field(default=BY_LENGTH)
    top: int | None = None
    max_matches: int = MAX_MATCHES

    def compare(self, left: RecordBlock, right: RecordBlock) -> BlockMatches:
        tally = self.count_pairs(left, right)
        if not tally.after_length:
            return _without_pairs(tally)
        batches: list[Numbers] = []
        compare = self._compare_by_length if self.by_length else self._compare_filtered
        for batch in compare(left, right, tally):
            tally.matches += len(batch)
            if tally.matches > self.max_matches:
                return _without_pairs(tally)
            batches.append(batch)
        return BlockMatches(np.concatenate(batches), tally)

    def count_pairs(self, left: RecordBlock, right: RecordBlock) -> PairCounts:
        pairs = len(left.sizes) * len(right.sizes)
        return PairCounts(pairs, self.limits.pairs_within(left.sizes, right.sizes))

    @property
    def by_length(self) -> bool:
        """Whether only the length filter is on; every kernel has it."""
        return not (self.filters.prefix or self.filters.position)

    def _compare_by_length(
        self, left: RecordBlock, right: RecordBlock, tally: PairCounts
    ) -> Iterator[Numbers]:
        tally.after_prefix = tally.after_length
        bounds = Bounds(self.limits.overlap, *self.window(left.sizes))
        rows, tiles = _rows(left, self.by_selectivity), _tiles(right, self.by_selectivity)
        if self.top is not None:
            partners = np.zeros((len(rows.words), self.top, 4), dtype=np.int64)
            tally.after_position = find_best(rows, tiles, bounds, partners)
            yield _pairs_of(partners)
            return
        matches, begin = np.empty((PAIRS_AT_ONCE, 3), dtype=np.int64), (0, 0)
        while begin[0] < len(tiles.words):
            count, full_counts, *next_begin = find_matches(rows, tiles, bounds, begin, matches)
            begin = (next_begin[0], next_begin[1])
            tally.after_position += full_counts
            yield matches[:count].copy()

    def _compare_filtered(
        self, left: RecordBlock, right: RecordBlock, tally: PairCounts
    ) -> Iterator[Numbers]:
        left_rows, right_rows = self._with_prefixes(left), self._with_prefixes(right)
        bounds = FilterBounds(self.limits.overlap, self.limits.prefix, *self.window(right.sizes))
        enabled = self.filters.prefix, self.filters.position
        matches = np.empty((max(PAIRS_AT_ONCE, len(right.sizes)), 3), dtype=np.int64)
        begin = 0
        while begin < len(left.sizes):
            count, after_prefix, after_position, begin = filter_pairs(
                left_rows, right_rows, bounds, *enabled, begin, matches
            )
            tally.after_prefix += after_prefix
            tally.after_position += after_position
            pairs = matches[:count].copy()
            # All pairs of a record are in one batch.
            yield pairs if self.top is None else best_of(pairs, left, right, self.top)

    def window(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows comparable with each cardinality: the first, and the end."""
        limits = self.limits
        return np.searchsorted(sizes, limits.low), np.searchsorted(sizes, limits.high, side="right")

    def _with_prefixes(self, block: RecordBlock) -> PrefixedRows:
        heads = np.zeros_like(block.words)
        ends = np.zeros(len(block.words), dtype=np.int64)
        prefixes(block.words, block.sizes, self.limits.prefix, heads, ends)
        return PrefixedRows(block.words, block.sizes, heads, ends)


def _rows(block: RecordBlock, by_selectivity: Numbers) -> Rows:
    words = np.ascontiguousarray(block.words[:, by_selectivity])
    return Rows(words, rests(words), block.sizes)


def _tiles(block: RecordBlock, by_selectivity: Numbers) -> Tiles:
    count = -(-len(block.words) // TILE)
    empty = count * TILE - len(block.words)
    words = np.pad(block.words[:, by_selectivity], ((0, empty), (0, 0)))
    return Tiles(
        np.ascontiguousarray(words.reshape(count, TILE, -1).transpose(0, 2, 1)),
        np.ascontiguousarray(rests(words).reshape(count, TILE, -1).transpose(0, 2, 1)),
        # Empty records repeat the last cardinality, so the tile's bounds do not change.
        np.pad(block.sizes, (0, empty), mode="edge").reshape(count, TILE),
        np.pad(block.ranks, (0, empty)).reshape(count, TILE),
    )


def rests(words: Words) -> Numbers:
    """Return the set bits after each group of words: records x groups."""
    groups = np.bitwise_count(words).reshape(len(words), -1, GROUP).sum(axis=2, dtype=np.int64)
    return np.ascontiguousarray(groups.sum(axis=1, keepdims=True) - groups.cumsum(axis=1))


def _pairs_of(partners: Numbers) -> Numbers:
    rows, partner = np.nonzero(partners[:, :, 2])
    return np.column_stack((rows, partners[rows, partner, :2]))


def best_of(pairs: Numbers, left: RecordBlock, right: RecordBlock, top: int) -> Numbers:
    i, j, overlap = pairs.T
    # Distinct quotients of integers this small are distinct as doubles.
    similarity = overlap / (left.sizes[i] + right.sizes[j] - overlap)
    sorted_ = pairs[np.lexsort((right.ranks[j], -similarity, i))]
    rows = sorted_[:, 0]
    # `rows` is sorted: the position of a pair among its record's pairs.
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return sorted_[rank < top]


@dataclass(frozen=True, slots=True)
class NamedBlock:
    block: RecordBlock
    party: int
    ids: pa.Array

    @classmethod
    def of(cls, row: dict[str, object], words: int) -> NamedBlock:
        flat: Words = np.frombuffer(row["words"], dtype=np.uint64).reshape(-1, words)  # type: ignore[call-overload]  # a cell of Arrow
        ranks = np.frombuffer(row["ranks"], dtype=np.int64)  # type: ignore[call-overload]  # as above
        ids = pa.array(row["ids"], pa.string())
        return cls(RecordBlock(flat, cardinalities(flat), ranks), int(str(row["party"])), ids)


class MatchLimit:
    """Limits the matches of all compared blocks.

    Beyond the limit matches are only counted, and no more blocks are compared. It is thread-safe.

    Args:
        max_matches: The limit.
    """

    def __init__(self, max_matches: int) -> None:
        self._max_matches = max_matches
        self._matches = 0
        self._lock = Lock()

    def wrap(self, compare: Callable[[Pair], BlockMatches]) -> Callable[[Pair], BlockMatches]:
        """Return a function that compares two blocks within the limit."""

        def compare_within_limit(pair: Pair) -> BlockMatches:
            if self._matches > self._max_matches:
                return _without_pairs(PairCounts())
            matches = compare(pair)
            with self._lock:
                self._matches += matches.tally.matches
                return (
                    matches if self._matches <= self._max_matches else _without_pairs(matches.tally)
                )

        return compare_within_limit


def to_record_batches(
    left: NamedBlock, right: NamedBlock, matches: BlockMatches
) -> Iterator[pa.RecordBatch]:
    """Convert the matches of two blocks to rows with ids, in batches; the tally follows.

    Returns:
        Batches of `RESULT`.
    """
    for begin in range(0, len(matches.pairs), PAIRS_AT_ONCE):
        yield _named_matches(left, right, matches.pairs[begin : begin + PAIRS_AT_ONCE])
    nulls = [[None]] * len(MATCHES)
    yield pa.record_batch([*nulls, [astuple(matches.tally)]], schema=RESULT)


def _named_matches(left: NamedBlock, right: NamedBlock, pairs: Numbers) -> pa.RecordBatch:
    i, j, overlap = pairs.T
    union = left.block.sizes[i] + right.block.sizes[j] - overlap
    count = len(i)
    lefts, rights = left.ids.take(pa.array(i)), right.ids.take(pa.array(j))
    ends = (pa.repeat(left.party, count), lefts, pa.repeat(right.party, count), rights)
    return pa.record_batch([*ends, overlap, union, pa.nulls(count)], schema=RESULT)
