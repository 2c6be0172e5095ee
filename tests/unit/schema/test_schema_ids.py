"""Ids: exactly the texts that a path segment can carry unambiguously."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.schema.ids import check_id


@pytest.mark.parametrize(
    "text", ["a", "...", "a b", "%2F", "é" * 256, "\U0001f600", "e\u0301", "~"]
)
def test_ids_are_returned_unchanged(text: str) -> None:
    assert check_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "/", "a/b", "a\0", "a\n", "\x7f", "\x85", "\ud800", "a" * 513, "é" * 257],
)
def test_other_texts_are_refused_with_their_location(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_id(text, "/operations/0/id")
    assert [location.pointer for location in caught.value.locations] == ["/operations/0/id"]
    caught.value.detail.encode()


@given(st.text(st.characters(exclude_categories=[])))
def test_an_id_has_utf8_without_slashes_and_controls(text: str) -> None:
    try:
        encoded = check_id(text).encode()
    except Invalid:
        return
    assert 1 <= len(encoded) <= 512
    assert b"/" not in encoded
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
