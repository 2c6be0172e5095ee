"""The filter on its way: whole in both forms, and refused if anything is wrong with it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api.models.reads import ClientFilter as ClientFilterAnswer
from app.http.paths import parse_pairs
from sketch.client.resources import QueryResult
from sketch.filter.hashing import hash_words, positions
from sketch.filter.shape import FilterShape
from sketch.protocol.keys import canonical_query
from sketch.protocol.wire import (
    ClientFilter,
    GroupMap,
    UnknownResource,
    WireError,
    decode,
    encode,
    encode_json,
)
from tests.unit.sketch.golden_vectors import VECTORS, key_of, written

GOLDEN = orjson.loads(VECTORS.read_bytes())
MAP: GroupMap = {
    "articles": {"text": ("title", "text"), "hits": ("hits",)},
    "people": {"all": ("name",)},
}
TOLD = ClientFilter(FilterShape(64, 2, 5), b"\x80" * 8, 17, 1000, "0123456789abcdef" * 2, 9, MAP)
RAW = encode(TOLD)

NAMES = st.text(max_size=5)
MAPS = st.dictionaries(
    NAMES, st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3), max_size=3
)
FILTERS = st.builds(
    lambda size, hashes, seed, rest: ClientFilter(
        FilterShape(8 * size, hashes, seed), bytes(range(size)), *rest
    ),
    st.integers(1, 100),
    st.integers(1, 32),
    st.integers(0, 2**32 - 1),
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        st.binary(min_size=16, max_size=16).map(bytes.hex),
        st.integers(0, 2**64 - 1),
        MAPS,
        st.booleans(),
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**64 - 1) | st.floats() | st.text(max_size=40),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(NAMES, some, max_size=3),
    max_leaves=6,
)


def summed(raw: bytes) -> bytes:
    """Put the right checksum behind what has been changed."""
    return raw[:-4] + zlib.crc32(raw[:-4]).to_bytes(4)


def test_the_golden_vectors_are_those_of_the_code() -> None:
    assert VECTORS.read_text(encoding="utf-8") == written()
    assert VECTORS.stat().st_size < 100_000


def test_the_golden_vectors_hold() -> None:
    for told in GOLDEN["hashes"]:
        assert list(hash_words(key_of(told["key"]), told["seed"])) == told["words"]
    for told in GOLDEN["positions"]:
        shape = FilterShape(told["m"], told["k"], told["seed"])
        assert list(positions(key_of(told["key"]), shape)) == told["positions"]
    for told in GOLDEN["documents"]:
        binary = decode(base64.b64decode(told["binary"]))
        assert orjson.loads(encode_json(binary)) == told["json"]
        assert all(binary.contains(key) for key in told["holds"])
        assert not any(binary.contains(key) for key in told["lacks"])
    for told in GOLDEN["queries"]:
        result = QueryResult.of("articles", told["asked"])
        assert (
            result.query
            == told["spelled"]
            == canonical_query(parse_pairs(told["spelled"].encode()))
        )
    for told in GOLDEN["broken"]:
        with pytest.raises(WireError):
            decode(base64.b64decode(told["binary"]))


def test_the_binary_form_byte_by_byte() -> None:
    text = b'{"articles":{"hits":["hits"],"text":["title","text"]},"people":{"all":["name"]}}'
    body = (
        b"PtSk\x01\x01\x02\x00"
        b"\x00\x00\x00\x05\x00\x00\x00\x40"
        b"\x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x03\xe8"
        b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"
        b"\x00\x00\x00\x00\x00\x00\x00\x09" + len(text).to_bytes(4) + text + b"\x80" * 8
    )
    assert body + zlib.crc32(body).to_bytes(4) == RAW


@given(FILTERS)
def test_both_forms_say_all_of_it(told: ClientFilter) -> None:
    assert decode(encode(told)) == told
    document = orjson.loads(encode_json(told))
    ClientFilterAnswer.model_validate(document)
    assert document == {
        "version": 1,
        "hash": 1,
        "k": told.shape.hashes,
        "m": told.shape.bits,
        "seed": told.shape.seed,
        "bits": base64.b64encode(told.bits).decode(),
        "time_us": told.time_us,
        "valid_for_ms": told.valid_for_ms,
        "generation": told.generation,
        "revision": str(told.revision),
        "map": orjson.loads(told.map_text),
        "revalidate_all": told.revalidate_all,
    }


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_every_changed_byte_is_noticed(at: int, by: int) -> None:
    with pytest.raises(WireError):
        decode(RAW[:at] + bytes([RAW[at] ^ by]) + RAW[at + 1 :])


@given(st.integers(0, len(RAW) - 1))
def test_what_is_cut_short_or_goes_on_is_refused(end: int) -> None:
    for raw in (RAW[:end], RAW + RAW[:end] + b"x", summed(RAW[:end])):
        with pytest.raises(WireError):
            decode(raw)


@given(st.integers(0, len(RAW) - 5), st.binary(min_size=1, max_size=9))
@example(6, b"\x00")
@example(6, b"\x21")
@example(7, b"\x02")
@example(12, b"\x80\x00\x00\x00")
@example(12, b"\x00\x00\x00\x3f")
@example(52, b"\xff\xff\xff\xff")
def test_with_the_right_checksum_it_is_a_filter_or_refused(at: int, octets: bytes) -> None:
    raw = summed((RAW[:at] + octets + RAW[at + len(octets) :])[: len(RAW)])
    try:
        told = decode(raw)
    except WireError:
        return
    assert decode(encode(told)) == told
    assert isinstance(told.contains("articles/7#text"), bool)


def test_a_flag_that_is_not_known_is_refused() -> None:
    with pytest.raises(WireError, match="version"):
        decode(summed(RAW[:7] + b"\x02" + RAW[8:]))


def test_the_map_has_a_longest_length() -> None:
    for length in (2**24, 2**24 + 1):
        raw = RAW[:52] + length.to_bytes(4) + b"{}".ljust(length) + RAW[-12:]
        if length == 2**24:
            assert decode(summed(raw)).map == {}
        else:
            with pytest.raises(WireError, match="too long"):
                decode(summed(raw))


@pytest.mark.parametrize(
    "map_", [{"a": {"b": "c"}}, {"a": {"b": {"c": 1}}}, {"a": {"b": [1]}}, {"a": ["b"]}, ["a"], 1]
)
def test_a_map_is_of_classes_groups_and_fields(map_: Any) -> None:
    text = orjson.dumps(map_)
    raw = RAW[:52] + len(text).to_bytes(4) + text + RAW[-12:]
    with pytest.raises(WireError):
        decode(summed(raw))


@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
@example(b"[" * 100_000)
@example(b'{"map":' + b'{"a":' * 100_000)
@example(b"\xff")
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": bytes(7)},
        {"time_us": 2**64},
        {"time_us": -1},
        {"revision": 2**64},
        {"valid_for_ms": 2**32},
        {"generation": "lost"},
    ],
)
def test_what_would_be_refused_is_not_made(changes: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        replace(TOLD, **changes)


def test_all_is_to_be_revalidated_if_it_says_so() -> None:
    assert not TOLD.contains("articles/7#text")
    assert replace(TOLD, revalidate_all=True).contains("articles/7#text")


@pytest.mark.parametrize(
    ("fields", "groups"),
    [(None, ["text", "hits"]), (["title"], ["text"]), (["hits", "text"], ["text", "hits"])],
)
def test_a_resource_is_tested_by_the_groups_it_shows(
    fields: list[str] | None, groups: list[str]
) -> None:
    expected = tuple(f"articles/a/b c#{group}" for group in groups)
    assert TOLD.keys_of("articles", "a/b c", fields) == expected


@pytest.mark.parametrize(
    ("class_name", "fields"),
    [("comments", None), ("articles", ["title", "price"]), ("articles", []), ("comments", ["x"])],
)
def test_a_resource_that_the_map_does_not_tell_has_no_keys(
    class_name: str, fields: list[str] | None
) -> None:
    """An empty answer would read as: none of its keys is in the filter."""
    with pytest.raises(UnknownResource):
        TOLD.keys_of(class_name, "7", fields)
