"""Laws of the filters: no key is lost, keys can be removed, pybloom-live agrees."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pybloom_live import BloomFilter as LiveFilter  # type: ignore[import-untyped]  # no type hints

from sketch.filter.bloom import BloomFilter
from sketch.filter.counting import CountingFilter
from sketch.filter.hashing import hash_all, positions, positions_of
from sketch.filter.shape import FilterShape
from sketch.protocol.port import FilterSnapshot
from sketch.protocol.union import full_bits, unite

KEYS = st.lists(st.text(max_size=20), max_size=40)
SHAPES = st.builds(
    FilterShape,
    bits=st.sampled_from([8, 64, 1024, 116_800]),
    hashes=st.integers(1, 32),
    seed=st.integers(0, 2**32 - 1),
)


def make_filter(shape: FilterShape, keys: list[str]) -> BloomFilter:
    filter_ = BloomFilter(shape)
    for key in keys:
        filter_.add(key)
    return filter_


@given(SHAPES, KEYS)
def test_no_key_is_lost(shape: FilterShape, keys: list[str]) -> None:
    filter_ = make_filter(shape, keys)
    assert all(key in filter_ for key in keys)
    assert all(key.encode() in filter_ for key in keys)


@given(SHAPES, KEYS, KEYS)
def test_a_batch_of_keys_equals_single_keys(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    one_by_one, at_once = make_filter(shape, keys), BloomFilter(shape)
    at_once.add_many([key.encode() for key in keys])
    assert one_by_one.bits == at_once.bits
    candidates = [*keys, *others]
    for filter_ in (one_by_one, at_once):
        expected = [filter_.contains(key) for key in candidates]
        assert filter_.contains_many(candidates).tolist() == expected


@given(SHAPES, KEYS.filter(bool))
def test_hashes_and_positions_of_many_keys_equal_those_of_each(
    shape: FilterShape, keys: list[str]
) -> None:
    hashes = hash_all(keys, shape.seed)
    assert hashes.tolist() == [hash_all([key], shape.seed)[0].tolist() for key in keys]
    assert positions_of(hashes, shape).tolist() == [list(positions(key, shape)) for key in keys]


@given(SHAPES, KEYS, KEYS)
def test_a_key_is_found_if_all_its_bits_are_set(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    filter_ = make_filter(shape, keys)
    bits = np.unpackbits(np.frombuffer(filter_.bits, np.uint8))
    for key in others:
        assert filter_.contains(key) == all(bits[position] for position in positions(key, shape))


@given(SHAPES, KEYS, KEYS)
def test_a_filter_is_restored_from_its_bits(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    filter_ = make_filter(shape, keys)
    restored = BloomFilter.from_bits(shape, filter_.bits)
    assert restored.bits == filter_.bits
    assert restored.contains_many(others).tolist() == filter_.contains_many(others).tolist()
    restored.add_many(others)
    assert filter_.bits == make_filter(shape, keys).bits


@given(SHAPES, st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=60))
def test_a_counting_filter_equals_the_plain_one_of_the_remaining_keys(
    shape: FilterShape, steps: list[tuple[bool, str]]
) -> None:
    filter_, remaining, changes, before = CountingFilter(shape), set[str](), 1, bytes(shape.size)
    for adds, key in steps:
        if adds:
            filter_.add(key)
            remaining.add(key)
        else:
            filter_.discard(key)
            remaining.discard(key)
        bits = bytes(filter_.bits)
        changes += sum((a ^ b).bit_count() for a, b in zip(before, bits, strict=True))
        before = bits
    assert filter_.bits == make_filter(shape, sorted(remaining)).bits
    assert filter_.bits_set == sum(byte.bit_count() for byte in filter_.bits)
    assert (filter_.revision, len(filter_)) == (changes, len(remaining))
    assert [key in filter_ for key in "abcdefghijkl"] == [
        key in remaining for key in "abcdefghijkl"
    ]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60, unique=True), st.integers(1, 10_000))
def test_keys_and_false_positives_agree_with_the_oracle(keys: list[str], seed: int) -> None:
    """pybloom-live is the oracle: as many bits, as many hashes, the same keys."""
    oracle = LiveFilter(capacity=1_000, error_rate=0.05)
    shape = FilterShape(-(-oracle.num_bits // 8) * 8, oracle.num_slices, seed)
    filter_ = make_filter(shape, keys)
    for key in keys:
        assert not oracle.add(key), "the oracle confuses two of the keys"
    assert all(key in oracle and key in filter_ for key in keys)
    other_keys = [f"{key}/{number}" for key in keys for number in range(20)]
    positives = sum(map(filter_.contains, other_keys))
    oracle_positives = sum(key in oracle for key in other_keys)
    assert abs(positives - oracle_positives) <= 0.05 * len(other_keys) + 5


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 2**50), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([FilterShape(8, 1), FilterShape(1024, 4)]),
)
def test_a_union_has_all_keys_and_is_as_old_as_its_oldest_member(
    members: list[tuple[list[str], int, bool]], shape: FilterShape
) -> None:
    """A reader adds its bound to that time; a later time would hide writes since then."""
    union = unite(
        [
            FilterSnapshot(
                shape,
                full_bits(shape) if lost else bytes(make_filter(shape, keys).bits),
                time_us,
                f"{number:032x}",
                number,
                lost,
            )
            for number, (keys, time_us, lost) in enumerate(members)
        ]
    )
    assert union.time_us == min(time_us for _, time_us, _ in members)
    assert union.revalidate_all == any(lost for _, _, lost in members)
    if union.revalidate_all:
        assert union.bits == full_bits(shape)
    else:
        all_keys = [key for keys, _, _ in members for key in keys]
        assert union.bits == bytes(make_filter(shape, all_keys).bits)
