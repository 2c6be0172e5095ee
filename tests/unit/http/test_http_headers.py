"""The header fields Prefer, Accept, Content-Type and Idempotency-Key, and CORS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.cors import CrossOrigin
from app.http.idempotency import Identity, OperationIds, parse_key
from app.http.negotiation import (
    JSON,
    accepts_by_name,
    accepts_gzip,
    check_accept,
    media_type,
    prefers_gzip,
)
from app.http.prefer import parse_prefer
from app.http.problems import IDEMPOTENCY_KEY_IN_USE, INVALID, HttpError

header_text = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)


@pytest.mark.parametrize(
    ("value", "minimal", "applied"),
    [
        ("return=minimal", True, "return=minimal"),
        ("return=representation", False, "return=representation"),
        ('Return = "minimal"', True, "return=minimal"),
        ("return=minimal, return=representation", True, "return=minimal"),
        ("return=minimal; foo=bar, wait=5", True, "return=minimal"),
        ("return=other", False, ""),
        ("respond-async", False, ""),
        ("consistency=bounded, max-staleness=1.5", False, "consistency=bounded, max-staleness=1.5"),
        ("at-least=bmV3cw", False, "at-least=bmV3cw"),
        ("max-staleness=-1", False, ""),
        ("handling=strict, unknown=1", False, "handling=strict"),
        ("", False, ""),
        (",,", False, ""),
    ],
)
def test_preferences(value: str, minimal: bool, applied: str) -> None:
    preferences = parse_prefer(value)
    assert (preferences.minimal, preferences.applied) == (minimal, applied)


def test_strict_handling_refuses_invalid_values() -> None:
    with pytest.raises(HttpError) as caught:
        parse_prefer("return=sometimes, handling=strict")
    assert caught.value.locations[0].pointer == "Prefer"


def test_a_list_of_preferences_has_a_bound() -> None:
    text = "return=minimal".ljust(4_096)
    assert parse_prefer(text).minimal
    with pytest.raises(HttpError) as caught:
        parse_prefer(text + " ")
    assert caught.value.locations[0].pointer == "Prefer"


def test_spaces_in_preferences_take_no_time() -> None:
    """With backtracking over spaces each would take a third of a second, all of them an hour."""
    for number in range(10_000):
        assert parse_prefer(f'p{number}={" " * 4_000}"').applied == ""


@given(header_text)
def test_no_prefer_breaks_the_parser(value: str) -> None:
    try:
        parse_prefer(value).applied.encode("ascii")
    except HttpError as error:
        assert error.type.status == 400  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("accept_encoding", "accepts", "prefers"),
    [
        ("gzip", True, True),
        ("GZip", True, True),
        ("x-gzip", True, True),
        ("br, gzip ; q = 0.001, zstd", True, True),
        ("*", True, True),
        ("*;q=0.5", True, True),
        ("gzip;q=0.5, identity;q=0.5", True, True),
        ("gzip;q=0.5, identity", True, False),
        ("identity;q=0.7, *;q=0.2", True, False),
        ("gzip, identity;q=0", True, True),
        ("gzip;q=0.1, *;q=0", True, True),
        ("", False, False),
        ("identity", False, False),
        ("br, deflate", False, False),
        ("gzip;q=0", False, False),
        ("gzip;q=0.000, *", False, False),
        ("*;q=0", False, False),
        ("identity;q=0", False, False),
        ("gzip;q=2", False, False),
        ("gzip;q=0.0001", False, False),
        ("gzip;q=", False, False),
        ("gzip gzip", False, False),
        ("gzip" + "," * 1_020, True, True),
        ("gzip" + "," * 1_021, False, False),
    ],
)
def test_codings(accept_encoding: str, accepts: bool, prefers: bool) -> None:
    assert accepts_gzip(accept_encoding) is accepts
    assert prefers_gzip(accept_encoding) is prefers


@pytest.mark.parametrize(
    ("accept", "fits"),
    [
        ("*/*", True),
        ("application/json", True),
        ("application/*;q=0.1", True),
        ("text/html, application/xhtml+xml, */*;q=0.8", True),
        ("APPLICATION/JSON; charset=utf-8", True),
        ("", True),
        ("nonsense", True),
        ("text/html", False),
        ("application/json;q=0, */*", False),
        ("application/json; q=0.000", False),
        ("*/*;q=0", False),
        ("application/xml, text/*", False),
    ],
)
def test_accept(accept: str, fits: bool) -> None:
    if fits:
        check_accept(accept, JSON)
    else:
        with pytest.raises(HttpError, match="Accept excludes"):
            check_accept(accept, JSON)


def test_accept_has_a_bound() -> None:
    text = JSON.ljust(1_024, ",")
    check_accept(text, JSON)
    assert accepts_by_name(text, JSON)
    assert not accepts_by_name(text + ",", JSON)
    with pytest.raises(HttpError) as caught:
        check_accept(text + ",", JSON)
    assert caught.value.type is INVALID
    assert caught.value.locations[0].pointer == "Accept"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("application/json", JSON),
        ("Application/JSON ; Charset=UTF-8", JSON),
        ('application/json;charset="utf-8"', JSON),
        ("application/json; charset=latin-1", None),
        ("application/json, text/plain", None),
        ("json", None),
        ("", None),
        (JSON.ljust(1_024), JSON),
        (JSON.ljust(1_025), None),
    ],
)
def test_content_type(value: str, expected: str | None) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("abc-123", "abc-123"),
        ('"abc-123"', "abc-123"),
        (r'"a\"b\\c d"', r'a"b\c d'),
        ("x" * 255, "x" * 255),
        (" padded ", "padded"),
    ],
)
def test_keys(value: str, key: str) -> None:
    assert parse_key(value) == key


@pytest.mark.parametrize(
    "value",
    ["", '""', "a b", "x" * 256, '"open', '"a"b', "ä", "a\x00", '"a\\n"', '"' + "x" * 256 + '"'],
)
def test_malformed_keys_are_refused(value: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_key(value)
    assert caught.value.type.status == 400


def test_a_key_is_held_by_one_request_at_a_time() -> None:
    ids = OperationIds()
    ours = Identity(ids, "news", "k", "f")
    other_database = Identity(ids, "other", "k", "f")
    other_sender = Identity(ids, "news", "k", "f", ("acme", "bob"))
    with ids.claim(ours):
        with ids.claim(other_database), ids.claim(other_sender):
            pass
        with pytest.raises(HttpError) as caught, ids.claim(Identity(ids, "news", "k", "f")):
            raise AssertionError
        assert caught.value.type is IDEMPOTENCY_KEY_IN_USE
    with ids.claim(ours):
        pass


def test_operations_without_a_key_are_all_different_and_with_one_are_the_same() -> None:
    ids = OperationIds()
    unkeyed = Identity(ids, "news", None, None)
    assert unkeyed.operation("a", "1") != unkeyed.operation("a", "1")
    keyed = Identity(ids, "news", "k", "f")
    repeated = Identity(OperationIds(), "news", "k", "f")
    assert keyed.operation("a", "1", 3) == repeated.operation("a", "1", 3)
    names = {keyed.operation("a", "1"), keyed.operation("a", "1", 0), keyed.operation("a", "1", 1)}
    names |= {keyed.operation("a1", ""), keyed.operation("", "a1")}
    assert len(names) == 5


def test_origins_are_per_database() -> None:
    cors = CrossOrigin({"news": ("https://a.example",), "open": ("*",)})
    allowed = dict(cors.headers("news", "https://a.example"))
    assert allowed[b"access-control-allow-origin"] == b"https://a.example"
    assert b"ETag" in allowed[b"access-control-expose-headers"]
    assert cors.headers("news", "https://b.example") == [(b"vary", b"Origin")]
    assert cors.headers("private", "https://a.example") == []
    wildcard = cors.headers("open", None)
    assert wildcard == cors.headers("open", "https://b.example"), "one copy serves all origins"
    assert (b"access-control-allow-origin", b"*") in wildcard
    assert b"vary" not in dict(wildcard)
