"""The hash family: the published algorithm, distant bits, and a uniform distribution."""

from __future__ import annotations

import struct

import mmh3
import numpy as np
import pytest

from sketch.filter.bloom import BloomFilter
from sketch.filter.hashing import hash_all, positions, positions_of
from sketch.filter.shape import FilterShape

KEYS = [f"articles/{number}#text" for number in range(20_000)]
SHAPE = FilterShape(seed=7)


def test_the_hash_is_murmur3_x86_128() -> None:
    """The verification value of SMHasher, by its published procedure."""
    hashes = b"".join(
        hash_all([bytes(range(length))], 256 - length).tobytes() for length in range(256)
    )
    assert hash_all([hashes], 0)[0, 0] == 0xB3ECE62A


def test_positions_follow_the_formula() -> None:
    first, second, *_ = struct.unpack("<4I", mmh3.mmh3_x86_128_digest("Ærø/7#é".encode(), 7))
    stride = (second >> 1) | 0x40000001
    expected = [(first + i * stride) % 2**32 * SHAPE.bits // 2**32 for i in range(SHAPE.hashes)]
    assert list(positions("Ærø/7#é", SHAPE)) == expected


def test_text_is_hashed_in_utf_8() -> None:
    assert positions("Ærø", SHAPE) == positions("Ærø".encode(), SHAPE)
    assert positions("é", SHAPE) != positions("e\u0301", SHAPE)


@pytest.mark.parametrize("key", ["\ud800", "articles/\udfff#text"])
def test_a_lone_surrogate_is_refused_everywhere(key: str) -> None:
    """It would end the process if it reached the hash function as text."""
    filter_ = BloomFilter(SHAPE)
    hashing = (lambda k: positions(k, SHAPE), lambda k: hash_all([k], 0))
    for call in (filter_.add, filter_.contains, *hashing):
        with pytest.raises(UnicodeEncodeError):
            call(key)
    with pytest.raises(UnicodeEncodeError):
        filter_.contains_many([KEYS[0], key])


def test_keys_of_two_types_are_refused() -> None:
    mixed = [["a", b"b"], [b"a", "b"]]
    for keys in mixed:
        with pytest.raises(TypeError):
            hash_all(keys, 0)  # type: ignore[arg-type]  # this is the test


def test_bits_of_a_key_are_far_from_each_other() -> None:
    """Successive bits are a quarter to a half of the ring away from each other."""
    shape = FilterShape(bits=1 << 20, hashes=32)
    distances = np.diff(positions_of(hash_all(KEYS, shape.seed), shape), axis=1) % shape.bits
    assert distances.min() >= shape.bits // 4 - 1
    assert distances.max() <= shape.bits // 2 + 1


@pytest.mark.parametrize("seed", [0, 0xFFFF_FFFF])
@pytest.mark.parametrize("form", ["articles/{}#text", "{}", "людзі/{:032x}#імя"])
def test_every_bit_is_equally_likely(form: str, seed: int) -> None:
    """Chi-square over 292 cells, for each of a key's bits: below mean + 5 deviations."""
    shape = FilterShape(seed=seed)
    cells = 292
    keys = [form.format(number) for number in range(100_000)]
    for column in positions_of(hash_all(keys, seed), shape).T:
        counts = np.bincount(column * cells // shape.bits, minlength=cells)
        expected = len(keys) / cells
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert statistic < (cells - 1) + 5 * (2 * (cells - 1)) ** 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((3, 3), np.uint32),
        np.zeros(4, np.uint32),
        np.zeros((3, 4), np.uint64),
        np.zeros((2, 2), object),
        np.array(7, np.uint32),
    ],
)
def test_an_array_of_another_type_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        BloomFilter(SHAPE).contains_hashes(wrong)


def test_hashes_may_be_of_any_type_of_fixed_size() -> None:
    filter_ = BloomFilter(SHAPE)
    filter_.add_many(KEYS[:10])
    words = hash_all(KEYS[:20], SHAPE.seed)
    expected = [True] * 10 + [False] * 10
    wide = np.concatenate([words, words], axis=1)[:, :4]
    forms = [words, words.view("<u8"), words.view("V16"), words.view(np.uint8), wide]
    for form in forms:
        assert filter_.contains_hashes(form).tolist() == expected
