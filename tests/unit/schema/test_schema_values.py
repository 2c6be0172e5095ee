"""Values at the limits of their types."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.schema.limits import DOCUMENT_DEPTH, MAX_ERRORS
from mediator.schema.parse import parse_schema
from mediator.schema.values import Codec

FIELDS: dict[str, Any] = {
    "title": {"type": "string", "required": True, "max_length": 5},
    "hits": {"type": "integer", "default": 0},
    "ratio": {"type": "float"},
    "price": {"type": "decimal"},
    "live": {"type": "boolean"},
    "at": {"type": "timestamp"},
    "raw": {"type": "binary", "max_length": 3},
    "author": {"type": "reference", "to": "things"},
    "meta": {"type": "document"},
    "list": {"type": "list", "items": "integer", "max_length": 3, "default": [1]},
    "tags": {"type": "set", "items": "string", "max_length": 2},
    "stock": {"type": "map", "items": "decimal"},
    "notes": {"type": "list", "items": "document"},
}
CODEC = Codec(parse_schema("test", {"classes": {"things": {"fields": FIELDS}}}).classes["things"])


def nested(depth: int) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for _ in range(depth - 1):
        body = {"k": body}
    return body


@pytest.mark.parametrize(
    ("field", "json", "value", "encoded"),
    [
        ("hits", -(2**63), -(2**63), -(2**63)),
        ("ratio", 3, 3.0, 3.0),
        ("price", "1.00", Decimal(1), "1"),
        ("price", "-0.00", Decimal(0), "0"),
        ("price", "0E99999", Decimal(0), "0"),
        ("price", "100", Decimal(100), "100"),
        ("price", "1E+33", Decimal("1E33"), "1" + "0" * 33),
        ("price", "1e34", Decimal("1E34"), "1E+34"),
        ("price", "0.00000001", Decimal("1E-8"), "0.00000001"),
        ("price", "1." + "0" * 60, Decimal(1), "1"),
        ("price", "1E-6143", Decimal("1E-6143"), "1E-6143"),
        (
            "at",
            "2024-01-02t03:04:05z",
            datetime(2024, 1, 2, 3, 4, 5, 0, UTC),
            "2024-01-02T03:04:05Z",
        ),
        (
            "at",
            "2024-01-02T03:04:05.1+02:30",
            datetime(2024, 1, 2, 0, 34, 5, 100000, UTC),
            "2024-01-02T00:34:05.100000Z",
        ),
        ("at", "0001-01-01T00:00:00Z", datetime(1, 1, 1, 0, 0, 0, 0, UTC), "0001-01-01T00:00:00Z"),
        ("raw", "AAEC", b"\0\1\2", "AAEC"),
        ("raw", "", b"", ""),
        (
            "meta",
            {"a": [1.0, -0.0, 1.5, 1e300]},
            {"a": [1, 0, 1.5, 1e300]},
            {"a": [1, 0, 1.5, 1e300]},
        ),
        ("meta", nested(DOCUMENT_DEPTH), nested(DOCUMENT_DEPTH), nested(DOCUMENT_DEPTH)),
        ("tags", ["b", "a", "b", "b"], ["a", "b"], ["a", "b"]),
        ("tags", ["\U00010000", "\uffff"], ["\uffff", "\U00010000"], ["\uffff", "\U00010000"]),
        ("stock", {"a": "2.50"}, {"a": Decimal("2.5")}, {"a": "2.5"}),
        ("hits", None, None, None),
    ],
)
def test_values_are_decoded_and_encoded(field: str, json: Any, value: Any, encoded: Any) -> None:
    decoded = CODEC.decode(field, json, "")
    assert decoded == value
    assert type(decoded) is type(value)
    assert repr(CODEC.encode({field: decoded})[field]) == repr(encoded)


def test_the_sign_of_zero_is_not_kept() -> None:
    assert repr(CODEC.decode("ratio", -0.0, "")) == "0.0"


@pytest.mark.parametrize(
    ("field", "json", "pointer"),
    [
        ("title", None, ""),
        ("title", "abcdef", ""),
        ("title", "\0", ""),
        ("title", "\udc00", ""),
        ("title", 1, ""),
        ("hits", 3.0, ""),
        ("hits", True, ""),
        ("hits", 2**63, ""),
        ("hits", "1", ""),
        ("ratio", True, ""),
        ("ratio", float("nan"), ""),
        ("ratio", float("-inf"), ""),
        ("ratio", 10**400, ""),
        ("price", 1.5, ""),
        ("price", "NaN", ""),
        ("price", " 1", ""),
        ("price", "1_0", ""),
        ("price", "\u0661", ""),
        ("price", "1" * 35, ""),
        ("price", "1E6145", ""),
        ("price", "1E-6144", ""),
        ("price", "1E" + "9" * 50, ""),
        ("price", "1" + "0" * 10_000, ""),
        ("live", 1, ""),
        ("at", 1704164645, ""),
        ("at", "2024-01-02T03:04:05", ""),
        ("at", "2024-01-02T03:04:05.1234567Z", ""),
        ("at", "2016-12-31T23:59:60Z", ""),
        ("at", "2024-01-02T24:00:00Z", ""),
        ("at", "2023-02-29T00:00:00Z", ""),
        ("at", "0001-01-01T00:00:00+01:00", ""),
        ("at", "9999-12-31T23:59:59-01:00", ""),
        ("at", "0000-01-01T00:00:00Z", ""),
        ("raw", "AAE", ""),
        ("raw", "AB==", ""),
        ("raw", "AA_-", ""),
        ("raw", "AA\n==", ""),
        ("raw", "é", ""),
        ("raw", "AAECAw==", ""),
        ("author", "a/b", ""),
        ("meta", [], ""),
        ("meta", {"a": [0, 2**63]}, "/a/1"),
        ("meta", {"a": {"": 1}}, "/a/"),
        ("meta", {"a/b~": "\0"}, "/a~1b~0"),
        ("meta", nested(DOCUMENT_DEPTH + 1), "/k" * DOCUMENT_DEPTH),
        ("list", [1, "2", 3], "/1"),
        ("list", [1, None], "/1"),
        ("list", [1, 2, 3, 4], ""),
        ("list", {}, ""),
        ("tags", ["a", "b", "c"], ""),
        ("stock", {"": "1"}, "/"),
        ("stock", {"a": 1}, "/a"),
        ("stock", [], ""),
        ("notes", [{}, {"a": 2**70}], "/1/a"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_location(
    field: str, json: Any, pointer: str
) -> None:
    for decode in (
        lambda: CODEC.decode(field, json, f"/{field}"),
        lambda: CODEC.decode_fields({field: json}),
    ):
        with pytest.raises(Invalid) as caught:
            decode()
        assert [location.pointer for location in caught.value.locations] == [f"/{field}{pointer}"]


def test_long_map_keys_are_counted_in_bytes() -> None:
    assert CODEC.decode("stock", {"é" * 256: "1"}, "") == {"é" * 256: Decimal(1)}
    with pytest.raises(Invalid):
        CODEC.decode("stock", {"é" * 257: "1"}, "")


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(Invalid) as caught:
        CODEC.decode_object({"hits": "x", "list": [None, 1, "y"], "nope/": 1}, "/0/body")
    pointers = [location.pointer for location in caught.value.locations]
    assert pointers == [
        "/0/body/hits",
        "/0/body/list/0",
        "/0/body/list/2",
        "/0/body/nope~1",
        "/0/body/title",
    ]


def test_mistakes_are_bounded() -> None:
    with pytest.raises(Invalid) as caught:
        CODEC.decode_object({f"x{n}": 1 for n in range(10_000)})
    assert len(caught.value.locations) == MAX_ERRORS


@pytest.mark.parametrize("body", [None, [], "title", 1, True])
def test_an_object_is_a_json_object(body: Any) -> None:
    with pytest.raises(Invalid) as caught:
        CODEC.decode_object(body, "/0")
    assert [location.pointer for location in caught.value.locations] == ["/0"]


def test_defaults_of_missing_fields_are_applied_and_not_shared() -> None:
    first = CODEC.decode_object({"title": "a"})
    assert first == {"title": "a", "hits": 0, "list": [1]}
    assert isinstance(first["list"], list)
    first["list"].append(2)
    assert CODEC.decode_object({"title": "a"})["list"] == [1]
    assert CODEC.decode_object({"title": "a", "hits": None, "list": []})["hits"] is None


def test_a_required_field_without_a_default_must_be_present() -> None:
    with pytest.raises(Invalid, match="/title is required"):
        CODEC.decode_object({})


def test_a_required_field_with_a_default_can_be_absent() -> None:
    fields = {"n": {"type": "integer", "required": True, "default": 7}}
    codec = Codec(parse_schema("test", {"classes": {"c": {"fields": fields}}}).classes["c"])
    assert codec.decode_object({}) == {"n": 7}


def test_encoding_does_not_change_the_values() -> None:
    values: dict[str, Any] = {"title": "a", "price": Decimal("1.50"), "raw": None}
    assert CODEC.encode(values) == {"title": "a", "price": "1.5", "raw": None}
    assert values["price"] == Decimal("1.50")
