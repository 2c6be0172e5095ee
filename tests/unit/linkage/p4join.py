"""P4Join as it is written down: plain, exact, every filter switchable; the oracle of kernels.

See docs/papers/pprl.md, 2.2 and 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from spark_jobs.linkage.private.limits import min_overlap, prefix_length
from spark_jobs.linkage.private.spec import Filters


@dataclass(frozen=True, slots=True)
class Record:
    """One encoded record.

    Attributes:
        id: Its name.
        source: Which owner's it is.
        bits: Its set positions, ascending.
    """

    id: str
    source: int
    bits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Two records of different owners that are at least as similar as required."""

    left: str
    right: str
    similarity: Fraction


ALL_FILTERS: Final = Filters()


@dataclass(slots=True)
class Counters:
    """Pairs of records that are left after each stage."""

    pairs: int = 0
    after_length: int = 0
    after_prefix: int = 0
    after_position: int = 0
    matches: int = 0


@dataclass(slots=True)
class _Prepared:
    """A record in the common order: its set positions, and its prefix."""

    record: Record
    bits: tuple[int, ...]
    prefix: tuple[int, ...]
    members: frozenset[int] = field(default_factory=frozenset)


def order_of(records: Iterable[Record]) -> Mapping[int, int]:
    """Return the rank of each position: rare ones first, ties by position; unused ones have none.

    It must be computed from the records of all owners, or the prefix filter loses pairs.
    """
    frequency: dict[int, int] = {}
    for record in records:
        for bit in record.bits:
            frequency[bit] = frequency.get(bit, 0) + 1
    ordered = sorted(frequency, key=lambda bit: (frequency[bit], bit))
    return {bit: rank for rank, bit in enumerate(ordered)}


def reordered(record: Record, order: Mapping[int, int]) -> tuple[int, ...]:
    """Return a record's set bits in the common order, ascending."""
    return tuple(sorted([order[bit] for bit in record.bits]))


def exceeds_position(
    left: Sequence[int], right: Sequence[int], prefixes: tuple[int, int], threshold: Fraction
) -> bool:
    """Whether two records can still share enough bits (the improved position filter).

    Args:
        left: Set bits of one record in the common order.
        right: Those of the other.
        prefixes: Lengths of their prefixes, in set bits.
        threshold: The least similarity.
    """
    x, y = left[: prefixes[0]], right[: prefixes[1]]
    overlap = len(set(x) & set(y))
    beyond_x = sum(bit > y[-1] for bit in x)
    beyond_y = sum(bit > x[-1] for bit in y)
    rest = min(len(left) - len(x) + beyond_x, len(right) - len(y) + beyond_y)
    return overlap + rest >= min_overlap(len(left), len(right), threshold)


def join(
    records: Sequence[Record],
    threshold: Fraction,
    filters: Filters = ALL_FILTERS,
    counters: Counters | None = None,
) -> Iterator[Match]:
    """Find all pairs of different owners whose Tanimoto similarity is the threshold at least.

    Args:
        records: Those of all owners; each has a bit at least.
        threshold: Above 0, at most 1.
        filters: What spares comparisons; the matches are the same with any.
        counters: Counts what each filter leaves.

    Raises:
        ValueError: The threshold is out of bounds, or a record has no bit.
    """
    if not 0 < threshold <= 1:
        raise ValueError("A threshold is above 0, and 1 at most.")
    if not all(record.bits for record in records):
        raise ValueError("A record without any bit is like every other.")
    counters = counters or Counters()
    order = order_of(records)
    prepared = sorted((_prepare(r, order, threshold) for r in records), key=lambda p: len(p.bits))
    waiting: dict[int, list[_Prepared]] = {}
    for own in prepared:
        cardinality = len(own.bits)
        for length in list(waiting):
            candidates = [other for other in waiting[length] if _foreign(own, other)]
            counters.pairs += len(candidates)
            if filters.length and length < threshold * cardinality:
                continue
            counters.after_length += len(candidates)
            yield from _compared(own, candidates, threshold, filters, counters)
        waiting.setdefault(cardinality, []).append(own)


def _foreign(own: _Prepared, other: _Prepared) -> bool:
    return own.record.source != other.record.source


def _prepare(record: Record, order: Mapping[int, int], threshold: Fraction) -> _Prepared:
    bits = reordered(record, order)
    return _Prepared(record, bits, bits[: prefix_length(len(bits), threshold)], frozenset(bits))


def _compared(
    own: _Prepared,
    candidates: Sequence[_Prepared],
    threshold: Fraction,
    filters: Filters,
    counters: Counters,
) -> Iterator[Match]:
    for other in candidates:
        if filters.prefix and not set(own.prefix) & set(other.prefix):
            continue
        counters.after_prefix += 1
        prefixes = len(own.prefix), len(other.prefix)
        if filters.position and not exceeds_position(own.bits, other.bits, prefixes, threshold):
            continue
        counters.after_position += 1
        common = len(own.members & other.members)
        similarity = Fraction(common, len(own.bits) + len(other.bits) - common)
        if similarity >= threshold:
            counters.matches += 1
            first, second = sorted((own.record, other.record), key=lambda r: r.source)
            yield Match(first.id, second.id, similarity)
