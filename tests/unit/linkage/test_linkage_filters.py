"""Pairs that pass P4Join's filters at the paper's density, and PPJoin's original filter."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.people import Person, owners
from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.clk import Clk, ClkShape, Keys
from spark_jobs.linkage.private.comparing import BlockSpan, tasks_between
from spark_jobs.linkage.private.limits import ThresholdTables, min_overlap, prefix_length
from spark_jobs.linkage.private.spec import Filters
from tests.unit.linkage.p4join import Counters, Record, exceeds_position, join, order_of, reordered
from tests.unit.linkage.test_linkage_private import O1

T8 = Fraction(4, 5)
SHAPE = ClkShape()
NO_FILTERS = Filters(length=False, prefix=False, position=False)


def max_overlap(left: tuple[int, ...], right: tuple[int, ...], prefixes: tuple[int, int]) -> int:
    """Return PPJoin's bound: split at the last common token of both prefixes."""
    common = set(left[: prefixes[0]]) & set(right[: prefixes[1]])
    last = max(common)
    beyond = (sum(bit > last for bit in left), sum(bit > last for bit in right))
    return len(common) + min(beyond)


def prefixes_of(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, int]:
    return prefix_length(len(left), T8), prefix_length(len(right), T8)


def test_ppjoins_filter_keeps_a_pair_that_p4joins_drops() -> None:
    """O1: by PPJoin's bound r4 and r3 can share 11 bits, which is enough; they share 10."""
    order = order_of(O1)
    bits = {record.id: reordered(record, order) for record in O1}
    r3, r4 = bits["r3"], bits["r4"]
    prefixes = prefixes_of(r4, r3)
    assert max_overlap(r4, r3, prefixes) == min_overlap(len(r4), len(r3), T8) == 11
    assert not exceeds_position(r4, r3, prefixes, T8)
    assert len(set(r3) & set(r4)) == 10


def test_both_filters_drop_the_other_pair() -> None:
    order = order_of(O1)
    bits = {record.id: reordered(record, order) for record in O1}
    r2, r3 = bits["r2"], bits["r3"]
    assert (max_overlap(r3, r2, prefixes_of(r3, r2)), min_overlap(12, 13, T8)) == (10, 12)
    assert not exceeds_position(r3, r2, prefixes_of(r3, r2), T8)


@given(st.lists(st.sets(st.integers(0, 15), min_size=1), min_size=2, max_size=8))
def test_neither_filter_drops_similar_pairs(bit_sets: list[set[int]]) -> None:
    records = [Record(str(n), n, tuple(sorted(bits))) for n, bits in enumerate(bit_sets)]
    order = order_of(records)
    for left, right in combinations([reordered(record, order) for record in records], 2):
        shared, prefixes = len({*left} & {*right}), prefixes_of(left, right)
        if shared >= T8 * (len(left) + len(right) - shared):
            assert max_overlap(left, right, prefixes) >= min_overlap(len(left), len(right), T8)
            assert exceeds_position(left, right, prefixes, T8)


@pytest.fixture(scope="module")
def encoded() -> list[Record]:
    """Two owners' people; each left person is also on the right, with a mistake."""
    clk = Clk(SHAPE, Keys(b"first key of both owners", b"second key of both owners"))

    def record(person: Person, number: int, source: int) -> Record:
        mask = clk.encode(person.values())
        bits = tuple(bit for bit in range(SHAPE.bits) if mask >> bit & 1)
        return Record(f"{source}/{number}", source, bits)

    sides = owners(60, 240, Random(6))
    return [record(p, n, source) for source, side in enumerate(sides) for n, p in enumerate(side)]


def test_o6_pairs_of_people_that_pass_the_filters(encoded: list[Record]) -> None:
    """At this density nearly every pair shares a bit of its prefixes; positions separate them."""
    counters = Counters()
    matches = {(match.left, match.right) for match in join(encoded, T8, counters=counters)}
    assert counters.pairs == 60 * 240
    assert counters.after_prefix > 0.99 * counters.after_length
    assert counters.after_position < 0.05 * counters.after_prefix
    unfiltered = {(m.left, m.right) for m in join(encoded, T8, NO_FILTERS)}
    assert matches == unfiltered != set()


def test_o6_cardinalities_and_prefixes(encoded: list[Record]) -> None:
    cardinality = fmean(len(record.bits) for record in encoded)
    prefix = fmean(prefix_length(len(record.bits), T8) for record in encoded)
    assert 270 < cardinality < 340
    assert prefix == pytest.approx(cardinality / 5 + 1.5, abs=0.5)


@pytest.mark.parametrize(("people", "pairs"), [(100_000, 400), (500_000, 10_000)])
def test_o7_pairs_of_blocks_without_skipping(people: int, pairs: int) -> None:
    """The paper's blocks of 2,000 records; one owner has a fifth of them."""
    comparison = BlockComparison(ThresholdTables.of(T8, SHAPE.bits), np.zeros(0, dtype=np.int64))
    spans = [
        BlockSpan(f"{party}/{number}", party, 2_000, 300, 310)
        for party, records in enumerate((people // 5, people * 4 // 5))
        for number in range(records // 2_000)
    ]
    assert sum(len(task.partners) for task in tasks_between(spans, comparison)) == pairs
    separate = [replace(span, low=100, high=110) if span.party else span for span in spans]
    assert tasks_between(separate, comparison) == []
