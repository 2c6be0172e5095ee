"""Laws of the filters: nothing is lost, what enters can leave, pybloom-live agrees."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pybloom_live import BloomFilter as LiveFilter  # type: ignore[import-untyped]  # it has no types

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


def filled(shape: FilterShape, keys: list[str]) -> BloomFilter:
    held = BloomFilter(shape)
    for key in keys:
        held.add(key)
    return held


@given(SHAPES, KEYS)
def test_no_key_is_lost(shape: FilterShape, keys: list[str]) -> None:
    held = filled(shape, keys)
    assert all(key in held for key in keys)
    assert all(key.encode() in held for key in keys)


@given(SHAPES, KEYS, KEYS)
def test_a_batch_of_keys_equals_single_keys(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    one_by_one, at_once = filled(shape, keys), BloomFilter(shape)
    at_once.add_many([key.encode() for key in keys])
    assert one_by_one.bits == at_once.bits
    candidates = [*keys, *others]
    for held in (one_by_one, at_once):
        expected = [held.contains(key) for key in candidates]
        assert held.contains_many(candidates).tolist() == expected


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
    held = filled(shape, keys)
    bits = np.unpackbits(np.frombuffer(held.bits, np.uint8))
    for key in others:
        assert held.contains(key) == all(bits[position] for position in positions(key, shape))


@given(SHAPES, KEYS, KEYS)
def test_a_filter_is_restored_from_its_bits(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    held = filled(shape, keys)
    back = BloomFilter.from_bits(shape, held.bits)
    assert back.bits == held.bits
    assert back.contains_many(others).tolist() == held.contains_many(others).tolist()
    back.add_many(others)
    assert held.bits == filled(shape, keys).bits


@given(SHAPES, st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=60))
def test_a_counting_filter_equals_the_plain_one_of_the_remaining_keys(
    shape: FilterShape, steps: list[tuple[bool, str]]
) -> None:
    held, left, changes, before = CountingFilter(shape), set[str](), 1, bytes(shape.size)
    for adds, key in steps:
        if adds:
            held.add(key)
            left.add(key)
        else:
            held.discard(key)
            left.discard(key)
        now = bytes(held.bits)
        changes += sum((a ^ b).bit_count() for a, b in zip(before, now, strict=True))
        before = now
    assert held.bits == filled(shape, sorted(left)).bits
    assert held.bits_set == sum(byte.bit_count() for byte in held.bits)
    assert (held.revision, len(held)) == (changes, len(left))
    assert [key in held for key in "abcdefghijkl"] == [key in left for key in "abcdefghijkl"]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60, unique=True), st.integers(1, 10_000))
def test_every_key_of_the_oracle_is_found_and_as_few_others(keys: list[str], seed: int) -> None:
    """pybloom-live is the oracle: as many bits, as many hashes, the same keys."""
    oracle = LiveFilter(capacity=1_000, error_rate=0.05)
    shape = FilterShape(-(-oracle.num_bits // 8) * 8, oracle.num_slices, seed)
    held = filled(shape, keys)
    for key in keys:
        assert not oracle.add(key), "the oracle takes one of the keys for another"
    assert all(key in oracle and key in held for key in keys)
    strangers = [f"{key}/{number}" for key in keys for number in range(20)]
    ours = sum(map(held.contains, strangers))
    theirs = sum(stranger in oracle for stranger in strangers)
    assert abs(ours - theirs) <= 0.05 * len(strangers) + 5


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 2**50), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([FilterShape(8, 1), FilterShape(1024, 4)]),
)
def test_a_union_has_all_keys_and_is_as_old_as_its_oldest_member(
    members: list[tuple[list[str], int, bool]], shape: FilterShape
) -> None:
    """A reader adds its bound to that time: a later one would hide what was written since."""
    union = unite(
        [
            FilterSnapshot(
                shape,
                full_bits(shape) if lost else bytes(filled(shape, keys).bits),
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
        every = [key for keys, _, _ in members for key in keys]
        assert union.bits == bytes(filled(shape, every).bits)
