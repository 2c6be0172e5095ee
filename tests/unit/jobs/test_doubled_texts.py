"""Texts that occur twice are found by their digests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sinks.doubled import duplicate_text


@given(st.lists(st.text(max_size=3), max_size=30))
def test_a_text_is_found_where_one_occurs_twice(texts: list[str]) -> None:
    found = duplicate_text(lambda: texts)
    if found is None:
        assert len(set(texts)) == len(texts)
    else:
        assert texts.count(found) > 1


def test_a_digest_that_ends_with_zero_is_one_of_a_text() -> None:
    """Of 5,000 texts some have one: about one of 256."""
    texts = [f"{n}" for n in range(5_000)]
    assert all(duplicate_text([text, "x", text].copy) == text for text in texts)
