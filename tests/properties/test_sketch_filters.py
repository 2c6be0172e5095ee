"""Laws of the filters: nothing is lost, what enters can leave, and both forms of the bits agree."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sketch.filter.bloom import BloomFilter, FilterShape
from sketch.filter.counting import CountingFilter
from sketch.filter.hashing import hash_all, hash_words, positions, positions_of

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
def test_many_at_once_are_as_one_by_one(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    one_by_one, at_once, by_hashes = filled(shape, keys), BloomFilter(shape), BloomFilter(shape)
    at_once.add_many(keys)
    by_hashes.add_hashes(hash_all([key.encode() for key in keys], shape.seed))
    assert one_by_one.bits == at_once.bits == by_hashes.bits
    asked = [*keys, *others]
    for held in (one_by_one, at_once, by_hashes):
        assert held.contains_many(asked).tolist() == [held.contains(key) for key in asked]


@given(SHAPES, KEYS.filter(bool))
def test_hashes_and_positions_of_many_are_those_of_each(
    shape: FilterShape, keys: list[str]
) -> None:
    hashes = hash_all(keys, shape.seed)
    assert hashes.tolist() == [list(hash_words(key, shape.seed)) for key in keys]
    assert positions_of(hashes, shape).tolist() == [list(positions(key, shape)) for key in keys]


@given(SHAPES, KEYS, KEYS)
def test_a_key_is_found_if_all_its_bits_are_set(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    held = filled(shape, keys)
    places = np.unpackbits(np.frombuffer(held.bits, np.uint8))
    for key in others:
        assert held.contains(key) == all(places[place] for place in positions(key, shape))


@given(SHAPES, KEYS, KEYS)
def test_a_union_is_of_the_keys_of_both(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    mine, theirs = filled(shape, keys), filled(shape, others)
    both = mine.union(theirs)
    assert bytes(both.bits) == bytes(a | b for a, b in zip(mine.bits, theirs.bits, strict=True))
    assert both.bits == filled(shape, keys + others).bits
    assert all(key in both for key in keys + others)


@given(SHAPES, KEYS, KEYS)
def test_a_filter_comes_back_from_its_bits(
    shape: FilterShape, keys: list[str], others: list[str]
) -> None:
    held = filled(shape, keys)
    back = BloomFilter.from_bits(shape, held.bits)
    assert back.bits == held.bits
    assert back.contains_many(others).tolist() == held.contains_many(others).tolist()
    back.add_many(others)
    assert held.bits == filled(shape, keys).bits


@given(SHAPES, KEYS, st.text())
def test_what_enters_can_leave(shape: FilterShape, keys: list[str], key: str) -> None:
    held = CountingFilter(shape)
    for other in keys:
        held.add(other)
    before = bytes(held.bits)
    held.add(key)
    assert key in held
    held.remove(key)
    assert held.bits == before


@given(SHAPES, st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=60))
def test_a_counting_filter_is_the_plain_one_of_what_is_left(
    shape: FilterShape, steps: list[tuple[bool, str]]
) -> None:
    held, left, changes, before = CountingFilter(shape), Counter[str](), 0, bytes(shape.size)
    for adds, key in steps:
        if adds:
            held.add(key)
            left[key] += 1
        elif left[key]:
            held.remove(key)
            left[key] -= 1
        now = bytes(held.bits)
        changes += sum((a ^ b).bit_count() for a, b in zip(before, now, strict=True))
        before = now
    plain = filled(shape, list(left.elements()))
    assert held.bits == plain.bits == held.plain().bits
    assert held.generation == changes
    asked = list("abcdefghijkl")
    assert held.contains_many(asked).tolist() == [plain.contains(key) for key in asked]
    assert [held.contains(key) for key in asked] == [plain.contains(key) for key in asked]
