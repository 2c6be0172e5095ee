"""The compiled kernels of private linkage have exactly the reference's results."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.linkage.private.blocks import (
    BY_LENGTH,
    BlockComparison,
    BlockMatches,
    PairCounts,
    RecordBlock,
)
from spark_jobs.linkage.private.limits import ThresholdTables, prefix_length
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import (
    BitOrder,
    Numbers,
    cardinalities,
    frequencies,
    unpacked,
)
from tests.unit.linkage.p4join import Counters, Record, join, order_of, reordered

T8 = Fraction(4, 5)
ALL_SWITCHES = [Filters(*switches) for switches in product((False, True), repeat=3)]
THRESHOLDS = [Fraction(n, 10) for n in (1, 5, 6, 7, 8, 9, 10)] + [Fraction(2, 3)]

Bits = frozenset[int]


def packed(records: Sequence[Bits], bits: int) -> list[bytes]:
    flags = np.zeros((len(records), -(-bits // 8) * 8), dtype=np.uint8)
    for row, record in enumerate(records):
        flags[row, list(record)] = 1
    return [row.tobytes() for row in np.packbits(flags, axis=1)]


def compare(
    left: Sequence[Bits],
    right: Sequence[Bits],
    bits: int,
    threshold: Fraction,
    filters: Filters = BY_LENGTH,
    top: int | None = None,
) -> tuple[set[tuple[int, int, Fraction]], PairCounts]:
    arrays = [unpacked(packed(side, bits)) for side in (left, right)]
    order = BitOrder(frequencies(np.concatenate(arrays)), len(left) + len(right))
    limits = ThresholdTables.of(threshold, order.words * 64, length=filters.length)
    (block, rows), (other, other_rows) = (
        RecordBlock.of(order.rewritten(array)) for array in arrays
    )
    result = BlockComparison(limits, order.by_selectivity, filters, top).compare(block, other)
    return set(matches(result, block, other, rows, other_rows)), result.tally


def matches(
    result: BlockMatches,
    block: RecordBlock,
    other: RecordBlock,
    rows: Numbers,
    other_rows: Numbers,
) -> list[tuple[int, int, Fraction]]:
    return [
        (
            int(rows[i]),
            int(other_rows[j]),
            Fraction(int(s), int(block.sizes[i] + other.sizes[j] - s)),
        )
        for i, j, s in result.pairs
    ]


def brute(
    left: Sequence[Bits], right: Sequence[Bits], threshold: Fraction
) -> set[tuple[int, int, Fraction]]:
    similarities = (
        (i, j, Fraction(len(x & y), len(x | y)))
        for (i, x), (j, y) in product(enumerate(left), enumerate(right))
    )
    return {match for match in similarities if match[2] >= threshold}


def best_of(pairs: set[tuple[int, int, Fraction]], top: int) -> set[tuple[int, int, Fraction]]:
    best: dict[int, list[tuple[int, int, Fraction]]] = {}
    for match in sorted(pairs, key=lambda m: (m[0], -m[2], m[1])):
        if len(row_matches := best.setdefault(match[0], [])) < top:
            row_matches.append(match)
    return {match for row_matches in best.values() for match in row_matches}


def side(bits: int) -> st.SearchStrategy[list[Bits]]:
    record = st.frozensets(st.integers(0, bits - 1), min_size=1, max_size=24)
    return st.lists(record, min_size=1, max_size=12)


@given(st.data(), st.sampled_from([20, 40, 64, 300]), st.sampled_from(THRESHOLDS))
def test_o5_every_combination_of_filters_finds_the_pairs_of_brute_force(
    data: st.DataObject, bits: int, threshold: Fraction
) -> None:
    left, right = data.draw(side(bits)), data.draw(side(bits))
    expected = brute(left, right, threshold)
    for filters in ALL_SWITCHES:
        result, tally = compare(left, right, bits, threshold, filters)
        assert result == expected
        assert tally.matches == len(expected)
    for top, filters in product((1, 3), (BY_LENGTH, Filters())):
        assert compare(left, right, bits, threshold, filters, top)[0] == best_of(expected, top)


def similar(random: Random, count: int, bits: int, share: float, families: int) -> list[Bits]:
    """Return records in families whose members differ in only a few bits."""
    heads = [[bit for bit in range(bits) if random.random() < share] for _ in range(families)]
    return [
        frozenset(random.choice(heads))
        ^ frozenset(random.sample(range(bits), random.randint(1, 9)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("bits", "share", "families", "threshold"),
    [(1000, 0.3, 20, T8), (1000, 0.3, 1, Fraction(9, 10)), (2000, 0.5, 9, Fraction(1, 2))],
)
def test_blocks_of_several_tiles_and_full_buffers(
    bits: int, share: float, families: int, threshold: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases with few and many pairs, one and all groups of words, and several batches of pairs."""
    monkeypatch.setattr("spark_jobs.linkage.private.blocks.PAIRS_AT_ONCE", 200)
    random = Random(bits)
    left = similar(random, 90, bits, share, families)
    right = similar(Random(bits), 130, bits, share, families)
    expected = brute(left, right, threshold)
    assert expected
    for filters in (BY_LENGTH, Filters(length=False, prefix=False, position=False), Filters()):
        assert compare(left, right, bits, threshold, filters)[0] == expected
    for top, filters in product((1, 5), (BY_LENGTH, Filters())):
        assert compare(left, right, bits, threshold, filters, top)[0] == best_of(expected, top)


def test_filters_pass_as_many_pairs_as_the_references() -> None:
    random = Random(7)
    left, right = similar(random, 40, 64, 0.3, 6), similar(random, 60, 64, 0.3, 6)
    records = [Record(str(n), 0, tuple(sorted(r))) for n, r in enumerate(left)]
    records += [Record(str(n), 1, tuple(sorted(r))) for n, r in enumerate(right)]
    for filters in ALL_SWITCHES:
        counters = Counters()
        list(join(records, T8, filters, counters))
        _, tally = compare(left, right, 64, T8, filters)
        assert (tally.pairs, tally.after_length) == (counters.pairs, counters.after_length)
        assert tally.matches == counters.matches
        if filters.prefix or filters.position:
            assert tally.after_prefix == counters.after_prefix
            assert tally.after_position == counters.after_position


O1 = [
    frozenset(position for position, bit in enumerate(text) if bit == "1")
    for text in (
        "10100010100101010000",
        "01110110110110011011",
        "10111010110111000011",
        "10101010010111010011",
    )
]


def test_o1_the_order_and_the_rewritten_arrays() -> None:
    arrays = unpacked(packed(O1, 20))
    order = BitOrder(frequencies(arrays), 4)
    assert order.positions[:16].tolist() == [1, 5, 16, 3, 4, 0, 8, 9, 12, 13, 15, 18, 19, 2, 6, 11]
    words = order.rewritten(arrays)
    assert [f"{int(word):064b}"[:20] for word in words[:, 0]] == [
        "00000110011001110000",
        "11110011101111110000",
        "00011111110111110000",
        "00001101111111110000",
    ]
    assert not words[:, 1:].any()
    assert cardinalities(words).tolist() == [7, 13, 12, 11]


@pytest.mark.parametrize(
    ("row", "other_row", "counts"), [(3, 2, (1, 1, 0)), (2, 1, (1, 1, 0)), (3, 1, (1, 0, 0))]
)
def test_o1_pairs_that_pass_the_filters(
    row: int, other_row: int, counts: tuple[int, int, int]
) -> None:
    arrays = unpacked(packed(O1, 20))
    order = BitOrder(frequencies(arrays), 4)
    words = order.rewritten(arrays)
    blocks = [RecordBlock.of(words[n : n + 1])[0] for n in (row, other_row)]
    tally = (
        BlockComparison(ThresholdTables.of(T8, 256), order.by_selectivity, Filters())
        .compare(*blocks)
        .tally
    )
    assert (tally.after_length, tally.after_prefix, tally.after_position) == counts


def test_o4_tables_are_exact() -> None:
    limits = ThresholdTables.of(T8, 1000)
    assert (limits.overlap[20], limits.overlap[63]) == (9, 28)
    assert (limits.low[10], limits.high[10]) == (8, 12)
    assert limits.prefix[10] == 3
    x, y = frozenset(range(31)), frozenset({*range(28), 40, 41, 42, 43})
    assert compare([x], [y], 64, T8)[0] == {(0, 0, T8)}


@given(st.lists(st.frozensets(st.integers(0, 39), min_size=1), min_size=1, max_size=9))
def test_orders_equal_those_of_the_reference(bit_sets: list[Bits]) -> None:
    records = [Record(str(n), 0, tuple(sorted(bits))) for n, bits in enumerate(bit_sets)]
    reference = order_of(records)
    arrays = unpacked(packed(bit_sets, 40))
    order = BitOrder(frequencies(arrays), len(bit_sets))
    assert order.positions[: len(reference)].tolist() == list(reference)
    for word, record in zip(order.rewritten(arrays)[:, 0], records, strict=True):
        text = f"{int(word):064b}"
        assert tuple(n for n, b in enumerate(text) if b == "1") == reordered(record, reference)


@given(st.integers(1, 1000), st.fractions(Fraction(1, 100), 1, max_denominator=10**6))
@settings(max_examples=20)
def test_tables_equal_the_formulas(size: int, threshold: Fraction) -> None:
    limits = ThresholdTables.of(threshold, 1000)
    assert limits.prefix[size] == prefix_length(size, threshold)
    assert Fraction(int(limits.low[size]), size) >= threshold
    assert Fraction(int(limits.low[size]) - 1, size) < threshold
    assert limits.high[size] == 1000 or Fraction(size, int(limits.high[size]) + 1) < threshold


def test_a_threshold_out_of_bounds_has_no_tables() -> None:
    with pytest.raises(ValueError, match="threshold"):
        ThresholdTables.of(Fraction(0), 64)
