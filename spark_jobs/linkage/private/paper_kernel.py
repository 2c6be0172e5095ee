"""P4Join's own filters, each switchable, over rows of words, to reproduce the paper's tables.

With encodings of usual density it is slower than `kernel`, as in the paper: prefixes of sixty bits
nearly always share one. It shows the pairs that pass each filter (docs/papers/pprl.md, 2.2, O6).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from spark_jobs.linkage.compiled import compiled, set_bits

__all__ = ["FilterBounds", "PrefixedRows", "filter_pairs", "prefixes"]

_ALL_ONES: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)
_LAST_BIT: Final = 63


@compiled
def prefixes(words: Any, sizes: Any, lengths: Any, heads: Any, ends: Any) -> None:
    """Copy the prefix of each record: its words up to a number of set bits, and its last position.

    Args:
        words: Records x words, position 0 highest.
        sizes: Cardinalities.
        lengths: Length of the prefix by cardinality, in set bits.
        heads: Output for prefixes, filled with zeros.
        ends: Output for their last positions.
    """
    for i in range(len(words)):
        remaining = lengths[sizes[i]]
        for word in range(words.shape[1]):
            count = set_bits(words[i, word])
            if count < remaining:
                heads[i, word] = words[i, word]
                remaining -= count
                continue
            rest = words[i, word]
            for position in range(_LAST_BIT + 1):
                bit = _ONE << np.uint64(_LAST_BIT - position)
                if rest & bit:
                    heads[i, word] |= bit
                    remaining -= 1
                    if remaining == 0:
                        ends[i] = word * (_LAST_BIT + 1) + position
                        break
            break


@compiled
def _count_after(head: Any, position: int) -> int:
    """Count the set bits of a prefix after a position."""
    word = position // (_LAST_BIT + 1)
    shift = np.uint64(_LAST_BIT - position % (_LAST_BIT + 1))
    count = set_bits(head[word] & ~(_ALL_ONES << shift))
    for later in range(word + 1, len(head)):
        count += set_bits(head[later])
    return count


@compiled
def _count_shared(left: Any, right: Any) -> int:
    count = 0
    for word in range(len(left)):
        count += set_bits(left[word] & right[word])
    return count


class PrefixedRows(NamedTuple):
    """Records x words in the common order, by cardinality; prefixes, and their last positions."""

    words: Any
    sizes: Any
    heads: Any
    ends: Any


class FilterBounds(NamedTuple):
    """Bounds of a threshold for records that are compared with others.

    Attributes:
        overlap: Minimum overlap by the sum of cardinalities.
        lengths: Length of the prefix by cardinality.
        low: The first of the others, by the cardinality of a record.
        high: Their end.
    """

    overlap: Any
    lengths: Any
    low: Any
    high: Any


@compiled
def _max_overlap(rows: Any, i: int, others: Any, j: int, lengths: Any, common: int) -> int:
    """Return an upper bound of the overlap, given common bits of the prefixes (position filter)."""
    size, other = rows.sizes[i], others.sizes[j]
    rest = size - lengths[size] + _count_after(rows.heads[i], others.ends[j])
    other_rest = other - lengths[other] + _count_after(others.heads[j], rows.ends[i])
    max_overlap: int = common + min(rest, other_rest)
    return max_overlap


@compiled
def filter_pairs(
    rows: Any,
    others: Any,
    bounds: Any,
    by_prefix: bool,
    by_position: bool,
    begin: int,
    matches: Any,
) -> tuple[int, int, int, int]:
    """Find the pairs with at least the minimum overlap, comparing only pairs that pass the filters.

    Pairs go to `matches`, which has room for at least all pairs of one record.

    Returns:
        The numbers of matches, of pairs that pass the prefix filter, and of pairs that pass the
        position filter; and the record to continue with, the number of records at the end.
    """
    count = after_prefix = after_position = 0
    for i in range(begin, len(rows.words)):
        size = rows.sizes[i]
        first, end = bounds.low[size], bounds.high[size]
        if count + end - first > len(matches):
            return count, after_prefix, after_position, i
        for j in range(first, end):
            min_overlap = bounds.overlap[size + others.sizes[j]]
            if by_prefix or by_position:
                common = _count_shared(rows.heads[i], others.heads[j])
                if by_prefix and common == 0:
                    continue
                after_prefix += 1
                if (
                    by_position
                    and _max_overlap(rows, i, others, j, bounds.lengths, common) < min_overlap
                ):
                    continue
            else:
                after_prefix += 1
            after_position += 1
            common = _count_shared(rows.words[i], others.words[j])
            if common >= min_overlap:
                matches[count, 0], matches[count, 1], matches[count, 2] = i, j, common
                count += 1
    return count, after_prefix, after_position, len(rows.words)
