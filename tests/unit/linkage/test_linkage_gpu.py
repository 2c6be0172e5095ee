"""The GPU kernel finds the same pairs as the CPU kernel, in the same order.

Runs on a GPU and in Numba's simulator (`test_linkage_gpu_simulated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spark_jobs.gpu import GpuUnavailable, look_for_gpu
from spark_jobs.linkage.private.blocks import BY_LENGTH, BlockComparison, BlockMatches, RecordBlock
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import GROUP, BitOrder, frequencies, unpacked
from tests.unit.linkage.test_linkage_kernel import T8, Bits, brute, packed, side, similar

THRESHOLDS = [Fraction(1, 10), Fraction(2, 3), T8]
UNLIMITED = Filters(length=False, prefix=False, position=False)


def gpu() -> str:
    try:
        return look_for_gpu()
    except GpuUnavailable as error:
        pytest.skip(str(error), allow_module_level=True)


SIMULATED = "simulator" in gpu()

from spark_jobs.linkage.private.gpu import kernel  # noqa: E402 - only with a GPU

if SIMULATED:  # each thread is a CPU thread, so use small blocks
    vars(kernel).update(THREADS=16, TILE_RECORDS=8)

from spark_jobs.linkage.private.gpu import device  # noqa: E402 - it copies those sizes

THREADS, TILE_RECORDS = kernel.THREADS, kernel.TILE_RECORDS


class BlockPair:
    """Two owners' blocks, and their records' original rows."""

    def __init__(self, left: Sequence[Bits], right: Sequence[Bits], bits: int) -> None:
        arrays = [unpacked(packed(side, bits)) for side in (left, right)]
        self.order = BitOrder(frequencies(np.concatenate(arrays)), len(left) + len(right))
        (self.left, self.left_rows), (self.right, self.right_rows) = (
            RecordBlock.of(self.order.rewritten(array)) for array in arrays
        )

    def comparison(
        self, threshold: Fraction, filters: Filters = BY_LENGTH, top: int | None = None
    ) -> BlockComparison:
        limits = ThresholdTables.of(threshold, self.order.words * 64, length=filters.length)
        return BlockComparison(limits, self.order.by_selectivity, filters, top)

    def rows(self, result: BlockMatches) -> set[tuple[int, int]]:
        i, j, _ = result.pairs.T
        return set(zip(self.left_rows[i].tolist(), self.right_rows[j].tolist(), strict=True))

    def check(self, comparison: BlockComparison) -> BlockMatches:
        """Check that the CPU and the GPU find the same pairs in the same order."""
        expected = comparison.compare(self.left, self.right)
        result = device.OnGpu(comparison).compare(self.left, self.right)
        assert result.pairs.dtype == expected.pairs.dtype
        assert result.pairs.tolist() == expected.pairs.tolist()
        counter_names = ("pairs", "after_length", "after_prefix", "matches")
        for name in counter_names:
            assert getattr(result.tally, name) == getattr(expected.tally, name), name
        assert result.tally.matches <= result.tally.after_position <= result.tally.after_length
        return result


@given(
    st.data(), st.sampled_from([20, 300]), st.sampled_from([Fraction(1, 10), Fraction(2, 3), T8])
)
@settings(max_examples=6, phases=[Phase.generate])  # shrinking takes minutes here
def test_the_kernel_finds_the_pairs_of_brute_force_and_the_cpu(
    data: st.DataObject, bits: int, threshold: Fraction
) -> None:
    left, right = data.draw(side(bits)), data.draw(side(bits))
    blocks = BlockPair(left, right, bits)
    expected = {(i, j) for i, j, _ in brute(left, right, threshold)}
    for filters in (BY_LENGTH, UNLIMITED):
        result = blocks.check(blocks.comparison(threshold, filters))
        assert blocks.rows(result) == expected
    blocks.check(blocks.comparison(threshold, top=2))


@pytest.mark.parametrize(
    ("left", "right", "bits", "threshold"),
    [
        (1, 1, 1000, T8),
        (THREADS + 1, TILE_RECORDS + 1, 1000, T8),
        (3, 3 * TILE_RECORDS + 2, 2000, Fraction(1, 2)),
        (THREADS + TILE_RECORDS + 2, 1, 64, Fraction(1, 3)),
    ],
    ids=["one of each", "one more than a block and a tile", "four tiles", "two blocks"],
)
def test_blocks_smaller_and_larger_than_a_tile(
    left: int, right: int, bits: int, threshold: Fraction
) -> None:
    blocks = BlockPair(
        similar(Random(bits), left, bits, 0.3, 4), similar(Random(bits), right, bits, 0.3, 4), bits
    )
    assert blocks.check(blocks.comparison(threshold)).tally.matches
    blocks.check(blocks.comparison(threshold, UNLIMITED, top=3))


def test_pairs_at_the_threshold_are_found_and_those_below_are_not() -> None:
    """80 of 100 bits in common are a Tanimoto similarity of 0.8; 79 of 101 are less."""
    random, left, right = Random(5), [], []
    for _ in range(6):
        for common in (80, 79):
            bits = random.sample(range(1000), 180 - common)
            left.append(frozenset(bits[:90]))
            right.append(frozenset(bits[90 - common :]))
    blocks = BlockPair(left, right, 1000)
    result = blocks.check(blocks.comparison(T8))
    assert blocks.rows(result) == {(n, n) for n in range(0, 12, 2)}


def test_equally_similar_records_are_kept_by_rank() -> None:
    same = [frozenset({1, 2, 3, 4})] * 9
    blocks = BlockPair(same[:3], same, 64)
    result = blocks.check(blocks.comparison(T8, top=2))
    assert blocks.rows(result) == {(i, j) for i in range(3) for j in range(2)}


def test_a_record_without_bits_matches_nothing() -> None:
    records = [frozenset({1, 2, 3}), frozenset({4})]
    blocks = BlockPair([frozenset(), *records], [frozenset(), frozenset(), *records], 64)
    for filters in (BY_LENGTH, UNLIMITED):
        comparison = blocks.comparison(T8, filters)
        result = device.OnGpu(comparison).compare(blocks.left, blocks.right)
        assert blocks.rows(result) == {(1, 2), (2, 3)}


def test_the_length_filter_separates_blocks() -> None:
    blocks = BlockPair([frozenset({1})] * 3, [frozenset(range(40))] * 3, 64)
    result = blocks.check(blocks.comparison(T8))
    assert (result.tally.after_length, result.tally.matches) == (0, 0)


def test_tiles_that_only_some_records_of_a_block_need() -> None:
    """There is a record of each cardinality; each contains the bits of all smaller records."""
    sizes = range(1, THREADS + 2 * TILE_RECORDS)
    ramp = [frozenset(range(n)) for n in sizes]
    blocks = BlockPair(ramp, ramp, len(ramp))
    result = blocks.check(blocks.comparison(T8))
    assert len(result.pairs) == sum(5 * min(x, y) >= 4 * max(x, y) for x in sizes for y in sizes)


def test_more_pairs_than_the_buffer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel runs a second time with a larger buffer, which it keeps."""
    monkeypatch.setattr(device, "ROOM", 7)
    blocks = BlockPair(
        similar(Random(1), 20, 300, 0.3, 1), similar(Random(2), 30, 300, 0.3, 1), 300
    )
    comparison = blocks.comparison(Fraction(1, 10))
    comparer = device.OnGpu(comparison)
    for _ in range(2):
        result = comparer.compare(blocks.left, blocks.right)
        assert len(result.pairs) == 600
        assert result.pairs.tolist() == comparison.compare(blocks.left, blocks.right).pairs.tolist()
        assert (comparer.found.shape[0], result.tally.on_gpu) == (602, 600)


def test_more_pairs_than_the_largest_buffer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU finds them."""
    monkeypatch.setattr(device, "ROOM", 7)
    monkeypatch.setattr(device, "MAX_ROOM", 500)
    blocks = BlockPair(
        similar(Random(1), 20, 300, 0.3, 1), similar(Random(2), 30, 300, 0.3, 1), 300
    )
    result = blocks.check(blocks.comparison(Fraction(1, 10)))
    assert (result.tally.matches, result.tally.on_gpu) == (600, 0)


def test_the_blocks_of_the_last_comparison_are_not_copied_twice() -> None:
    first, second = (BlockPair([frozenset({1, 2})], [frozenset({n})], 64) for n in (1, 2))
    comparer = device.OnGpu(first.comparison(Fraction(1, 10)))
    new_copies: list[device.BlockCopy] = []
    for left, right in (
        (first.left, first.right),
        (first.left, second.right),
        (second.left, second.right),
        (first.left, second.right),  # the first block was released
    ):
        before = [id(copy) for copy in comparer.copies]
        comparer.compare(left, right)
        assert [id(copy.block) for copy in comparer.copies] == [id(left), id(right)]
        new_copies += [copy for copy in comparer.copies if id(copy) not in before]
    expected = [first.left, first.right, second.right, second.left, first.left]
    assert [id(copy.block) for copy in new_copies] == [id(block) for block in expected]


def test_the_most_selective_words_are_compared_first() -> None:
    """The order does not change the result, only how early a pair is rejected."""
    blocks = BlockPair(similar(Random(1), 5, 600, 0.3, 3), similar(Random(2), 5, 600, 0.3, 3), 600)
    comparer = device.OnGpu(comparison := blocks.comparison(T8))
    comparer.compare(blocks.left, blocks.right)
    assert comparison.by_selectivity.tolist() != sorted(comparison.by_selectivity.tolist())
    for block, copy in zip((blocks.left, blocks.right), comparer.copies, strict=True):
        words = copy.words.copy_to_host().T
        assert words.tolist() == block.words[:, comparison.by_selectivity].tolist()
        remaining_bits = [int(np.bitwise_count(row[GROUP:]).sum()) for row in words]
        assert copy.rests.copy_to_host()[0].tolist() == remaining_bits


@pytest.mark.skipif(SIMULATED, reason="millions of pairs are too many for a simulator")
@pytest.mark.parametrize("top", [None, 3])
def test_blocks_of_full_size(top: int | None) -> None:
    left, right = (similar(Random(n), 8000, 1000, 0.3, 900) for n in (1, 2))
    blocks = BlockPair(left, right, 1000)
    result = blocks.check(blocks.comparison(T8, top=top))
    assert result.tally.on_gpu == 64_000_000
    assert result.tally.matches
