"""Blocks of records, and comparing two of them: what a task does.

A block holds records of one owner, sorted by cardinality. Which kernel compares two blocks depends
on the filters that are chosen; which pairs match does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, fields
from threading import Lock
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.private.kernel import TILE, Bounds, Rows, Tiles, best, beyond
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.paper_kernel import FilterBounds, PrefixedRows, filtered, prefixes
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import GROUP, Numbers, Words, cardinalities

__all__ = [
    "BY_LENGTH",
    "MATCHES",
    "MOST_MATCHES",
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
"""The fastest: the length filter, and the kernel's own bound."""

PAIRS_AT_ONCE: Final = 1 << 16
"""Pairs that a kernel can return at once."""

MOST_MATCHES: Final = 20_000_000
"""Matches of a run at most: with more, the threshold is of no use."""

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
"""A match: two owners, two ids, and how many bits they share and have in total."""

RESULT: Final = pa.schema([*MATCHES, ("tally", pa.list_(pa.int64()))])
"""The output of a task: matches, and in rows of their own the counts."""


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
        """Sort records that are in the order of their ids; also return where each was."""
        sizes = cardinalities(words)
        order = np.argsort(sizes, kind="stable")
        return cls(words[order], sizes[order], order), order


Pair: TypeAlias = tuple[RecordBlock, RecordBlock]


@dataclass(slots=True)
class PairCounts:
    """Pairs left after each step; a step that was not taken leaves all pairs.

    `after_position` are the pairs whose overlap was counted whole, after the position filter or the
    kernel's bound. The bounds of kernels differ, that of a GPU and that of a processor too.
    """

    pairs: int = 0
    after_length: int = 0
    after_prefix: int = 0
    after_position: int = 0
    matches: int = 0
    on_gpu: int = 0

    def add(self, other: PairCounts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(frozen=True, slots=True)
class BlockMatches:
    """Pairs that match (row of the one, row of the other, overlap), and the counts.

    There are no pairs, but their count, where there are more than the limit.
    """

    pairs: Numbers
    tally: PairCounts


def _only_counted(tally: PairCounts) -> BlockMatches:
    return BlockMatches(np.empty((0, 3), dtype=np.int64), tally)


@dataclass(frozen=True, slots=True)
class BlockComparison:
    """Compares blocks.

    Attributes:
        by_selectivity: The words in the order of comparison (`BitOrder.by_selectivity`).
        top: Partners that each record of the left block keeps, ties by rank; None: all.
        most: Matches of all blocks at most. Blocks that have more among them are not compared to
            the end, and their matches are not kept.
    """

    limits: ThresholdTables
    by_selectivity: Numbers
    filters: Filters = field(default=BY_LENGTH)
    top: int | None = None
    most: int = MOST_MATCHES

    def compare(self, left: RecordBlock, right: RecordBlock) -> BlockMatches:
        tally = self.count_pairs(left, right)
        if not tally.after_length:
            return _only_counted(tally)
        batches: list[Numbers] = []
        compare = self._bounded if self.by_length else self._filtered
        for batch in compare(left, right, tally):
            tally.matches += len(batch)
            if tally.matches > self.most:
                return _only_counted(tally)
            batches.append(batch)
        return BlockMatches(np.concatenate(batches), tally)

    def count_pairs(self, left: RecordBlock, right: RecordBlock) -> PairCounts:
        pairs = len(left.sizes) * len(right.sizes)
        return PairCounts(pairs, self.limits.pairs_within(left.sizes, right.sizes))

    @property
    def by_length(self) -> bool:
        """Whether only the length filter is on, which every kernel has."""
        return not (self.filters.prefix or self.filters.position)

    def _bounded(
        self, left: RecordBlock, right: RecordBlock, tally: PairCounts
    ) -> Iterator[Numbers]:
        tally.after_prefix = tally.after_length
        bounds = Bounds(self.limits.overlap, *self.window(left.sizes))
        rows, tiles = _rows(left, self.by_selectivity), _tiles(right, self.by_selectivity)
        if self.top is not None:
            partners = np.zeros((len(rows.words), self.top, 4), dtype=np.int64)
            tally.after_position = best(rows, tiles, bounds, partners)
            yield _pairs_of(partners)
            return
        matches, begin = np.empty((PAIRS_AT_ONCE, 3), dtype=np.int64), (0, 0)
        while begin[0] < len(tiles.words):
            count, whole, *rest = beyond(rows, tiles, bounds, begin, matches)
            begin = (rest[0], rest[1])
            tally.after_position += whole
            yield matches[:count].copy()

    def _filtered(
        self, left: RecordBlock, right: RecordBlock, tally: PairCounts
    ) -> Iterator[Numbers]:
        rows, others = self._with_prefixes(left), self._with_prefixes(right)
        bounds = FilterBounds(self.limits.overlap, self.limits.prefix, *self.window(right.sizes))
        by = self.filters.prefix, self.filters.position
        matches = np.empty((max(PAIRS_AT_ONCE, len(right.sizes)), 3), dtype=np.int64)
        begin = 0
        while begin < len(left.sizes):
            count, after_prefix, after_position, begin = filtered(
                rows, others, bounds, *by, begin, matches
            )
            tally.after_prefix += after_prefix
            tally.after_position += after_position
            pairs = matches[:count].copy()
            # All pairs of a record are in one batch.
            yield pairs if self.top is None else best_of(pairs, left, right, self.top)

    def window(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows that may meet a cardinality: the first, and the one behind the last."""
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
        # Empty records repeat the last cardinality: the bounds of the tile stay the same.
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
    # Quotients of whole numbers this small are equal as doubles only if they are equal.
    similarity = overlap / (left.sizes[i] + right.sizes[j] - overlap)
    sorted_ = pairs[np.lexsort((right.ranks[j], -similarity, i))]
    rows = sorted_[:, 0]
    # `rows` is sorted: the position of a pair among those of its record.
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
    """Lets blocks be compared until all that were have more matches than a limit.

    From then on matches are only counted, and further blocks are not compared. It may be used by
    several threads.

    Args:
        most: The limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found = 0
        self._lock = Lock()

    def limited(self, compare: Callable[[Pair], BlockMatches]) -> Callable[[Pair], BlockMatches]:
        """Return a function that compares two blocks within the limit."""

        def compared(pair: Pair) -> BlockMatches:
            if self._found > self._most:
                return _only_counted(PairCounts())
            done = compare(pair)
            with self._lock:
                self._found += done.tally.matches
                return done if self._found <= self._most else _only_counted(done.tally)

        return compared


def to_record_batches(
    left: NamedBlock, right: NamedBlock, done: BlockMatches
) -> Iterator[pa.RecordBatch]:
    """Convert the matches of two blocks to rows with ids, some at a time; then follows the tally.

    Returns:
        Batches of `RESULT`.
    """
    for begin in range(0, len(done.pairs), PAIRS_AT_ONCE):
        yield _named_matches(left, right, done.pairs[begin : begin + PAIRS_AT_ONCE])
    nothing = [[None]] * len(MATCHES)
    yield pa.record_batch([*nothing, [astuple(done.tally)]], schema=RESULT)


def _named_matches(left: NamedBlock, right: NamedBlock, pairs: Numbers) -> pa.RecordBatch:
    i, j, overlap = pairs.T
    union = left.block.sizes[i] + right.block.sizes[j] - overlap
    count = len(i)
    lefts, rights = left.ids.take(pa.array(i)), right.ids.take(pa.array(j))
    ends = (pa.repeat(left.party, count), lefts, pa.repeat(right.party, count), rights)
    return pa.record_batch([*ends, overlap, union, pa.nulls(count)], schema=RESULT)
