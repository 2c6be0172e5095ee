"""The wire format of the filter: complete in both forms, and refused if anything is wrong."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api.models.reads import ClientFilter
from app.http.paths import parse_pairs
from sketch.client.resources import ObjectResource, QueryResource
from sketch.filter.hashing import hash_all, positions
from sketch.filter.shape import FilterShape
from sketch.protocol.keys import canonical_query
from sketch.protocol.port import FilterSnapshot
from sketch.protocol.wire import (
    FilterDocument,
    GroupMap,
    WireError,
    decode,
    encode,
    encode_json,
)
from tests.unit.sketch.golden_vectors import VECTORS, format_vectors, key_of

GOLDEN = orjson.loads(VECTORS.read_bytes())
MAP: GroupMap = {
    "articles": {"text": ("title", "text"), "hits": ("hits",)},
    "people": {"all": ("name",)},
}
EXAMPLE = FilterDocument(
    FilterSnapshot(FilterShape(64, 2, 5), b"\x80" * 8, 17, "0123456789abcdef" * 2, 9), 1000, MAP
)
RAW = encode(EXAMPLE)

NAMES = st.text(max_size=5)
MAPS = st.dictionaries(
    NAMES, st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3), max_size=3
)
FILTERS = st.builds(
    lambda size, hashes, seed, snapshot, validity_and_map: FilterDocument(
        FilterSnapshot(FilterShape(8 * size, hashes, seed), bytes(range(size)), *snapshot),
        *validity_and_map,
    ),
    st.integers(1, 100),
    st.integers(1, 32),
    st.integers(0, 2**32 - 1),
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.binary(min_size=16, max_size=16).map(bytes.hex),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    ),
    st.tuples(st.integers(0, 2**32 - 1), MAPS),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**64 - 1) | st.floats() | st.text(max_size=40),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(NAMES, some, max_size=3),
    max_leaves=6,
)


def with_checksum(raw: bytes) -> bytes:
    """Return a message with a correct checksum."""
    return raw[:-4] + zlib.crc32(raw[:-4]).to_bytes(4)


def test_the_golden_vectors_are_those_of_the_code() -> None:
    assert VECTORS.read_text(encoding="utf-8") == format_vectors()
    assert VECTORS.stat().st_size < 100_000


def test_the_golden_vectors_hold() -> None:
    for vector in GOLDEN["hashes"]:
        assert hash_all([key_of(vector["key"])], vector["seed"]).tolist() == [vector["words"]]
    for vector in GOLDEN["positions"]:
        shape = FilterShape(vector["m"], vector["k"], vector["seed"])
        assert list(positions(key_of(vector["key"]), shape)) == vector["positions"]
    for vector in GOLDEN["documents"]:
        binary = decode(base64.b64decode(vector["binary"]))
        assert orjson.loads(encode_json(binary)) == vector["json"]
        assert all(binary.contains(key) for key in vector["holds"])
        assert not any(binary.contains(key) for key in vector["lacks"])
    for vector in GOLDEN["queries"]:
        canonical = vector["canonical"]
        assert QueryResource.of("articles", vector["parameters"]).query == canonical
        assert canonical_query(parse_pairs(canonical.encode())) == canonical
    for vector in GOLDEN["broken"]:
        with pytest.raises(WireError):
            decode(base64.b64decode(vector["binary"]))


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
def test_both_encodings_are_complete(filter_: FilterDocument) -> None:
    assert decode(encode(filter_)) == filter_
    document = orjson.loads(encode_json(filter_))
    ClientFilter.model_validate(document)
    assert document == {
        "version": 1,
        "hash": 1,
        "k": filter_.snapshot.shape.hashes,
        "m": filter_.snapshot.shape.bits,
        "seed": filter_.snapshot.shape.seed,
        "bits": base64.b64encode(filter_.snapshot.bits).decode(),
        "time_us": filter_.snapshot.time_us,
        "valid_for_ms": filter_.valid_for_ms,
        "generation": filter_.snapshot.generation,
        "revision": str(filter_.snapshot.revision),
        "map": orjson.loads(filter_.map_text),
        "revalidate_all": filter_.snapshot.revalidate_all,
    }


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_every_changed_byte_is_noticed(at: int, by: int) -> None:
    with pytest.raises(WireError):
        decode(RAW[:at] + bytes([RAW[at] ^ by]) + RAW[at + 1 :])


@given(st.integers(0, len(RAW) - 1))
def test_a_truncated_or_longer_message_is_refused(end: int) -> None:
    for raw in (RAW[:end], RAW + RAW[:end] + b"x", with_checksum(RAW[:end])):
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
    raw = with_checksum((RAW[:at] + octets + RAW[at + len(octets) :])[: len(RAW)])
    try:
        filter_ = decode(raw)
    except WireError:
        return
    assert decode(encode(filter_)) == filter_
    assert isinstance(filter_.contains("articles/7#text"), bool)


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(WireError, match="version"):
        decode(with_checksum(RAW[:7] + b"\x02" + RAW[8:]))


def test_the_length_of_the_map_is_bounded() -> None:
    for length in (2**24, 2**24 + 1):
        raw = RAW[:52] + length.to_bytes(4) + b"{}".ljust(length) + RAW[-12:]
        if length == 2**24:
            assert decode(with_checksum(raw)).map == {}
        else:
            with pytest.raises(WireError, match="too long"):
                decode(with_checksum(raw))


@pytest.mark.parametrize(
    "map_", [{"a": {"b": "c"}}, {"a": {"b": {"c": 1}}}, {"a": {"b": [1]}}, {"a": ["b"]}, ["a"], 1]
)
def test_a_malformed_map_is_refused(map_: Any) -> None:
    text = orjson.dumps(map_)
    raw = RAW[:52] + len(text).to_bytes(4) + text + RAW[-12:]
    with pytest.raises(WireError):
        decode(with_checksum(raw))


@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
@example(b"[" * 100_000)
@example(b'{"map":' + b'{"a":' * 100_000)
@example(b"\xff")
def test_invalid_encodings_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": bytes(7)},
        {"time_us": 2**64},
        {"time_us": -1},
        {"revision": 2**64},
        {"generation": "lost"},
    ],
)
def test_an_invalid_filter_is_not_built(changes: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        replace(EXAMPLE, snapshot=replace(EXAMPLE.snapshot, **changes))


@pytest.mark.parametrize("validity_ms", [-1, 2**32])
def test_the_validity_is_bounded(validity_ms: int) -> None:
    with pytest.raises(WireError):
        replace(EXAMPLE, valid_for_ms=validity_ms)


def test_everything_is_revalidated_if_the_filter_requires_it() -> None:
    assert not EXAMPLE.contains("articles/7#text")
    snapshot = replace(EXAMPLE.snapshot, revalidate_all=True)
    assert replace(EXAMPLE, snapshot=snapshot).contains("articles/7#text")


@pytest.mark.parametrize(
    ("fields", "groups"),
    [(None, ["text", "hits"]), (["title"], ["text"]), (["hits", "text"], ["text", "hits"])],
)
def test_a_resource_is_tested_by_the_groups_it_shows(
    fields: list[str] | None, groups: list[str]
) -> None:
    expected = tuple(f"articles/a/b c#{group}" for group in groups)
    assert ObjectResource.of("articles", "a/b c", fields).keys(EXAMPLE.map) == expected


@pytest.mark.parametrize(
    ("class_name", "fields"),
    [("comments", None), ("articles", ["title", "price"]), ("comments", ["x"])],
)
def test_a_resource_that_the_map_does_not_list_is_unknown(
    class_name: str, fields: list[str] | None
) -> None:
    assert ObjectResource.of(class_name, "7", fields).keys(EXAMPLE.map) == ()
