"""Values as texts of Redis: every value is decoded exactly, equal items have equal texts."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.redis.codec import COLLECTIONS, decode, encode, item_encoder, members

VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.STRING: st.text(),
    FieldType.REFERENCE: st.text(min_size=1),
    FieldType.INTEGER: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    FieldType.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(fold=0)),
    FieldType.BINARY: st.binary(),
    FieldType.DOCUMENT: st.dictionaries(
        st.text(max_size=5),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    ),
}


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def joined(value: Any, field: Field) -> bytes:
    """Return the whole value, joined as the scripts join it."""
    tags, *items = map(as_bytes, members(value, field))
    return tags + b"".join(b"%d:%b" % (len(item), item) for item in items)


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_a_value_survives_encoding(type_: FieldType) -> None:
    field = Field("f", type_)

    @given(VALUES[type_])
    def check(value: Any) -> None:
        decoded = decode(as_bytes(encode(value, field)))
        assert decoded == value
        assert type(decoded) is type(value)
        assert repr(decoded) == repr(value) or type_ is FieldType.DOCUMENT

    check()


def test_every_type_is_covered() -> None:
    assert set(VALUES) | COLLECTIONS == set(FieldType)
    assert set(VALUES) > SCALARS


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_null_is_not_a_value(type_: FieldType) -> None:
    assert decode(as_bytes(encode(None, Field("f", type_)))) is None


@pytest.mark.parametrize("items", VALUES, ids=str)
def test_a_list_and_a_map_are_decoded_with_their_nulls(items: FieldType) -> None:
    @settings(max_examples=30)
    @given(st.lists(st.none() | VALUES[items]), st.dictionaries(st.text(), VALUES[items]))
    def check(elements: list[Any], entries: dict[str, Any]) -> None:
        assert decode(joined(elements, Field("f", FieldType.LIST, items=items))) == elements
        assert decode(joined(entries, Field("f", FieldType.MAP, items=items))) == entries

    check()


@given(st.sets(st.text()))
def test_a_set_is_decoded_in_the_order_of_utf_8(elements: set[str]) -> None:
    field = Field("f", FieldType.SET, items=FieldType.STRING)
    assert decode(joined(list(elements), field)) == sorted(elements, key=str.encode)


@given(st.decimals(-(10**9), 10**9, places=4))
def test_equal_decimals_are_one_item(number: Decimal) -> None:
    text = item_encoder(FieldType.DECIMAL)
    assert text(number) == text(number.normalize()) == text(number + Decimal("0.000000"))


def test_the_two_zeros_are_one_item() -> None:
    text = item_encoder(FieldType.FLOAT)
    assert text(0.0) == text(-0.0)


def test_integers_are_plain_digits() -> None:
    assert encode(-(2**63), Field("f", FieldType.INTEGER)) == "-9223372036854775808"


def test_documents_that_are_equal_have_equal_texts() -> None:
    field = Field("f", FieldType.DOCUMENT)
    assert encode({"b": 1, "a": 2}, field) == encode({"a": 2, "b": 1}, field)


def test_timestamps_keep_their_microseconds() -> None:
    field = Field("f", FieldType.TIMESTAMP)
    assert encode(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), field) == "u-1"
