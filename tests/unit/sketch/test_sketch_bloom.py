"""Shapes, sizes and the filters' single cases; the laws are in tests/properties."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sketch.filter.bloom import BloomFilter
from sketch.filter.hashing import positions
from sketch.filter.shape import (
    FilterShape,
    capacity,
    false_positive_rate,
)

SMALL = FilterShape(bits=1024, hashes=3, seed=5)


@pytest.mark.parametrize(
    ("bits", "hashes", "seed"),
    [(0, 4, 0), (12, 4, 0), (2**31 + 8, 4, 0), (8, 0, 0), (8, 33, 0), (8, 1, -1), (8, 1, 2**32)],
)
def test_shapes_have_bounds(bits: int, hashes: int, seed: int) -> None:
    with pytest.raises(ValueError):
        FilterShape(bits, hashes, seed)


def test_sizes_of_the_sheet() -> None:
    """docs/papers/cache_sketch.md, section 4."""
    assert capacity(116_800, 0.05) == 18_732
    assert false_positive_rate(116_800, 4, 18_732) == pytest.approx(0.0503, abs=5e-5)
    best = math.log(2) * 116_800 / 50_000
    rates = [false_positive_rate(116_800, hashes, 50_000) for hashes in (best, 2, 4)]
    assert rates == pytest.approx([0.326, 0.331, 0.451], abs=6e-4)


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, math.nan])
def test_a_rate_lies_between_0_and_1(rate: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        capacity(8, rate)


def test_bits_are_as_redis_sets_them() -> None:
    filter_ = BloomFilter(SMALL)
    filter_.add("articles/7#text")
    expected = bytearray(128)
    for position in positions("articles/7#text", SMALL):
        expected[position // 8] |= 1 << (7 - position % 8)
    assert filter_.bits == expected
    assert filter_.bits.readonly


def test_a_filter_has_statistics() -> None:
    filter_ = BloomFilter(FilterShape())
    assert (filter_.fill_ratio, filter_.estimated_count, filter_.false_positive_rate) == (0, 0, 0)
    filter_.add_many([f"articles/{number}#text" for number in range(18_732)])
    assert filter_.fill_ratio == pytest.approx(0.4734, abs=5e-3)
    assert filter_.estimated_count == pytest.approx(18_732, rel=0.01)
    assert filter_.false_positive_rate == pytest.approx(0.0503, rel=0.02)
    full = BloomFilter.from_bits(SMALL, b"\xff" * 128)
    assert (full.fill_ratio, full.estimated_count, full.false_positive_rate) == (1, math.inf, 1)


def test_false_positives_are_as_many_as_set() -> None:
    filter_ = BloomFilter(FilterShape())
    filter_.add_many([f"articles/{number}#text" for number in range(18_732)])
    strangers = [f"articles/{number}#text" for number in range(20_000, 220_000)]
    assert np.mean(filter_.contains_many(strangers)) == pytest.approx(0.0503, rel=0.05)


def test_no_key_is_lost_in_a_large_filter() -> None:
    """Strides add up over single queries: an error of one shows only where cells are narrow."""
    filter_ = BloomFilter(FilterShape(2**22, 32, 1))
    keys = [f"articles/{number}#text" for number in range(2_000)]
    filter_.add_many(keys)
    assert all(key in filter_ for key in keys)


@pytest.mark.parametrize("size", [0, 127, 129])
def test_bits_have_to_fit_the_shape(size: int) -> None:
    with pytest.raises(ValueError, match="shape"):
        BloomFilter.from_bits(SMALL, bytes(size))


def test_no_keys_at_all() -> None:
    filter_ = BloomFilter(SMALL)
    filter_.add_many([])
    assert filter_.contains_many([]).shape == (0,)
    assert filter_.fill_ratio == 0
