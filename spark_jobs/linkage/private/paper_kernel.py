"""P4Join's own filters, each switchable, over rows of words: what its tables are repeated with.

Slower than `kernel` where encodings are as dense as usual, as the paper matches itself: prefixes of
sixty bits nearly always share one. It tells what each filter leaves (docs/papers/pprl.md, 2.2, O6).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from spark_jobs.linkage.compiled import compiled, set_bits

__all__ = ["filtered", "prefixes"]

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
        heads: Where prefixes go, zero all over.
        ends: Where their last positions go.
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


@compiled
def filtered(
    words: Any,
    sizes: Any,
    heads: Any,
    ends: Any,
    other_words: Any,
    other_sizes: Any,
    other_heads: Any,
    other_ends: Any,
    overlap: Any,
    lengths: Any,
    low: Any,
    high: Any,
    by_prefix: bool,
    by_position: bool,
    begin: int,
    matches: Any,
) -> tuple[int, int, int, int]:
    """Find the pairs whose overlap is the least one or more, sparing what the filters spare.

    Args:
        words: Records x words in the common order.
        sizes: Their cardinalities.
        heads: Their prefixes.
        ends: The last positions of those.
        other_words: Others, sorted by cardinality.
        other_sizes: Their cardinalities.
        other_heads: Their prefixes.
        other_ends: The last positions of those.
        overlap: Least overlap by the sum of cardinalities.
        lengths: Length of the prefix by cardinality.
        low: First of the others, by the cardinality of a record.
        high: The one behind the last of them.
        by_prefix: Whether prefixes must share a bit.
        by_position: Whether the improved position filter is asked.
        begin: The record to go on from.
        matches: Where pairs go; room for all of one record's at least.

    Returns:
        Pairs matches, pairs left by the prefix filter, pairs left by the position filter, and the
        record to go on from: the number of records if nothing is left.
    """
    count = after_prefix = after_position = 0
    for i in range(begin, len(words)):
        size = sizes[i]
        first, behind = low[size], high[size]
        if count + behind - first > len(matches):
            return count, after_prefix, after_position, i
        for j in range(first, behind):
            least = overlap[size + other_sizes[j]]
            if by_prefix or by_position:
                common = _shared(heads[i], other_heads[j])
                if by_prefix and common == 0:
                    continue
                after_prefix += 1
                if by_position:
                    rest = size - lengths[size] + _count_behind(heads[i], other_ends[j])
                    other = other_sizes[j]
                    other_rest = other - lengths[other] + _count_behind(other_heads[j], ends[i])
                    if common + min(rest, other_rest) < least:
                        continue
            else:
                after_prefix += 1
            after_position += 1
            common = _shared(words[i], other_words[j])
            if common >= least:
                matches[count, 0], matches[count, 1], matches[count, 2] = i, j, common
                count += 1
    return count, after_prefix, after_position, len(words)
