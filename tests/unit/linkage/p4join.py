"""P4Join as published: plain and exact, with optional filters; the oracle of the kernels.

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
        id: The record's id.
        source: The number of its owner.
        bits: The positions of its set bits, ascending.
    """

    id: str
    source: int
    bits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Two records of different owners whose similarity reaches the threshold."""

    left: str
    right: str
    similarity: Fraction


ALL_FILTERS: Final = Filters()


@dataclass(slots=True)
class Counters:
    """Numbers of pairs that remain after each stage."""

    pairs: int = 0
    after_length: int = 0
    after_prefix: int = 0
    after_position: int = 0
    matches: int = 0


@dataclass(slots=True)
class _Prepared:
    """A record in the common order: its set bits and its prefix."""

    record: Record
    bits: tuple[int, ...]
    prefix: tuple[int, ...]
    members: frozenset[int] = field(default_factory=frozenset)


def order_of(records: Iterable[Record]) -> Mapping[int, int]:
    """Return the rank of each used position: rare positions first, ties by position.

    Pass the records of all owners, or the prefix filter loses pairs.
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
    """Return whether two records can still share enough bits (the improved position filter).

    Args:
        left: Set bits of one record in the common order.
        right: Set bits of the other record in the common order.
        prefixes: Lengths of their prefixes, in set bits.
        threshold: The minimum similarity.
    """
    x, y = left[: prefixes[0]], right[: prefixes[1]]
    overlap = len(set(x) & set(y))
    beyond_x = sum(bit > y[-1] for bit in x)
    beyond_y = sum(bit > x[-1] for bit in y)
    remaining = min(len(left) - len(x) + beyond_x, len(right) - len(y) + beyond_y)
    return overlap + remaining >= min_overlap(len(left), len(right), threshold)


def join(
    records: Sequence[Record],
    threshold: Fraction,
    filters: Filters = ALL_FILTERS,
    counters: Counters | None = None,
) -> Iterator[Match]:
    """Find all pairs of different owners with a Tanimoto similarity of at least the threshold.

    Args:
        records: The records of all owners; each has at least one set bit.
        threshold: Above 0, at most 1.
        filters: Filters that save comparisons; they do not change the matches.
        counters: Counts the pairs that pass each filter.

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
    by_cardinality: dict[int, list[_Prepared]] = {}
    for probe in prepared:
        cardinality = len(probe.bits)
        for length in list(by_cardinality):
            candidates = [
                other for other in by_cardinality[length] if _has_other_owner(probe, other)
            ]
            counters.pairs += len(candidates)
            if filters.length and length < threshold * cardinality:
                continue
            counters.after_length += len(candidates)
            yield from _compared(probe, candidates, threshold, filters, counters)
        by_cardinality.setdefault(cardinality, []).append(probe)


def _has_other_owner(probe: _Prepared, other: _Prepared) -> bool:
    return probe.record.source != other.record.source


def _prepare(record: Record, order: Mapping[int, int], threshold: Fraction) -> _Prepared:
    bits = reordered(record, order)
    return _Prepared(record, bits, bits[: prefix_length(len(bits), threshold)], frozenset(bits))


def _compared(
    probe: _Prepared,
    candidates: Sequence[_Prepared],
    threshold: Fraction,
    filters: Filters,
    counters: Counters,
) -> Iterator[Match]:
    for other in candidates:
        if filters.prefix and not set(probe.prefix) & set(other.prefix):
            continue
        counters.after_prefix += 1
        prefixes = len(probe.prefix), len(other.prefix)
        if filters.position and not exceeds_position(probe.bits, other.bits, prefixes, threshold):
            continue
        counters.after_position += 1
        common = len(probe.members & other.members)
        similarity = Fraction(common, len(probe.bits) + len(other.bits) - common)
        if similarity >= threshold:
            counters.matches += 1
            first, second = sorted((probe.record, other.record), key=lambda r: r.source)
            yield Match(first.id, second.id, similarity)
