"""P4Join's own filters, each switchable, over rows of words: the tables of the paper repeated.

Slower than `kernel` where encodings are as dense as usual, as in the paper: prefixes of sixty bits
nearly always share one. It shows what each filter leaves (docs/papers/pprl.md, 2.2, O6).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from spark_jobs.linkage.compiled import compiled, set_bits

__all__ = ["FilterBounds", "PrefixedRows", "filtered", "prefixes"]

_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)
_LAST: Final = 63


@compiled
def prefixes(words: Any, sizes: Any, lengths: Any, heads: Any, ends: Any) -> None:
    """Cut the prefix off each record: its words up to a number of set bits, and its last position.

    Args:
        words: Records x words, position 0 highest.
        sizes: Cardinalities.
        lengths: Length of the prefix by cardinality, in set bits.
        heads: Output for prefixes, filled with zeros.
        ends: Output for their last positions.
    """
    for i in range(len(words)):
        missing = lengths[sizes[i]]
        for word in range(words.shape[1]):
            count = set_bits(words[i, word])
            if count < missing:
                heads[i, word] = words[i, word]
                missing -= count
                continue
            rest = words[i, word]
            for position in range(_LAST + 1):
                bit = _ONE << np.uint64(_LAST - position)
                if rest & bit:
                    heads[i, word] |= bit
                    missing -= 1
                    if missing == 0:
                        ends[i] = word * (_LAST + 1) + position
                        break
            break


@compiled
def _count_behind(head: Any, position: int) -> int:
    """Count the set bits of a prefix behind a position."""
    word = position // (_LAST + 1)
    shift = np.uint64(_LAST - position % (_LAST + 1))
    count = set_bits(head[word] & ~(_ALL << shift))
    for later in range(word + 1, len(head)):
        count += set_bits(head[later])
    return count


@compiled
def _shared(left: Any, right: Any) -> int:
    count = 0
    for word in range(len(left)):
        count += set_bits(left[word] & right[word])
    return count


class PrefixedRows(NamedTuple):
    """Records x words in the common order, by cardinality; prefixes, and where those end."""

    words: Any
    sizes: Any
    heads: Any
    ends: Any


class FilterBounds(NamedTuple):
    """Bounds of a threshold for records that are compared with others.

    Attributes:
        overlap: Least overlap by the sum of cardinalities.
        lengths: Length of the prefix by cardinality.
        low: First of the others, by the cardinality of a record.
        high: The one behind the last of them.
    """

    overlap: Any
    lengths: Any
    low: Any
    high: Any


@compiled
def _reachable(rows: Any, i: int, others: Any, j: int, lengths: Any, common: int) -> int:
    """Bound the overlap of two records whose prefixes have common bits (position filter)."""
    size, other = rows.sizes[i], others.sizes[j]
    rest = size - lengths[size] + _count_behind(rows.heads[i], others.ends[j])
    other_rest = other - lengths[other] + _count_behind(others.heads[j], rows.ends[i])
    reachable: int = common + min(rest, other_rest)
    return reachable


@compiled
def filtered(
    rows: Any,
    others: Any,
    bounds: Any,
    by_prefix: bool,
    by_position: bool,
    begin: int,
    matches: Any,
) -> tuple[int, int, int, int]:
    """Find the pairs whose overlap is the least one or more, without comparing filtered pairs.

    Pairs go to `matches`, which has room for at least all pairs of one record.

    Returns:
        Pairs that match, pairs left by the prefix filter, pairs left by the position filter, and
        the record to continue with: the number of records if nothing is left.
    """
    count = after_prefix = after_position = 0
    for i in range(begin, len(rows.words)):
        size = rows.sizes[i]
        first, behind = bounds.low[size], bounds.high[size]
        if count + behind - first > len(matches):
            return count, after_prefix, after_position, i
        for j in range(first, behind):
            least = bounds.overlap[size + others.sizes[j]]
            if by_prefix or by_position:
                common = _shared(rows.heads[i], others.heads[j])
                if by_prefix and common == 0:
                    continue
                after_prefix += 1
                if by_position and _reachable(rows, i, others, j, bounds.lengths, common) < least:
                    continue
            else:
                after_prefix += 1
            after_position += 1
            common = _shared(rows.words[i], others.words[j])
            if common >= least:
                matches[count, 0], matches[count, 1], matches[count, 2] = i, j, common
                count += 1
    return count, after_prefix, after_position, len(rows.words)
