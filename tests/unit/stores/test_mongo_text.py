"""Encodings of texts, keys, decimals and names that all MongoDB servers order alike."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.stores.mongo.codec import (
    decimal_of,
    ordered_text,
    path_key,
    plain_key,
    plain_text,
    sortable_decimal,
)
from mediator.stores.mongo.layout import database_name, database_prefix

# Characters around the surrogates, where UTF-8 and UTF-16 disagree, and the prefixes themselves.
_CRITICAL = "a\x00\ud7ff\ue000\ue001\uf8ff\uffff\U00010000\U0001f600\U0010ffff"
texts = st.text(st.sampled_from(_CRITICAL)) | st.text()
decimals = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34),
    st.integers(-6176, 6111),
)


@given(texts, texts)
def test_texts_sort_by_utf8_in_either_encoding(left: str, right: str) -> None:
    expected = left.encode() < right.encode()
    a, b = ordered_text(left), ordered_text(right)
    assert (a.encode() < b.encode()) == expected
    assert (a.encode("utf-16-be") < b.encode("utf-16-be")) == expected


@given(texts)
def test_texts_are_read_as_written(text: str) -> None:
    assert plain_text(ordered_text(text)) == text


@given(st.text(st.sampled_from("%.$a0E2\x00")) | st.text())
def test_keys_are_one_step_of_a_path(key: str) -> None:
    stored = path_key(key)
    assert stored
    assert not set(stored) & set(".$\x00")
    assert plain_key(stored) == key


@given(decimals, decimals)
def test_decimals_sort_as_texts(left: Decimal, right: Decimal) -> None:
    a, b = sortable_decimal(left), sortable_decimal(right)
    assert (a < b) == (left < right)
    assert (a == b) == (left == right)


@given(decimals)
def test_decimals_are_read_as_written(value: Decimal) -> None:
    assert decimal_of(sortable_decimal(value)) == value


@given(st.text(min_size=1), st.from_regex("[a-z][a-z0-9_]{0,62}", fullmatch=True))
def test_database_names_are_valid(namespace: str, database: str) -> None:
    name = database_name(namespace, database)
    assert len(name.encode()) <= 63
    assert name.startswith(database_prefix(namespace))
    assert not set(name) & set('/\\. "$*<>:|?\x00')
    assert name == name.lower()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b_c"), ("a_b", "c")),
        (("a", "x" * 62 + "y"), ("a", "x" * 62 + "z")),
        (("n" * 80 + "a", "d"), ("n" * 80 + "b", "d")),
        (("A", "d"), ("a", "d")),
    ],
)
def test_database_names_are_distinct(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert database_name(*first) != database_name(*second)
