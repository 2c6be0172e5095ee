"""Duplicate texts are found by their digests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sinks.doubled import duplicate_text


@given(st.lists(st.text(max_size=3), max_size=30))
def test_a_duplicate_text_is_found(texts: list[str]) -> None:
    duplicate = duplicate_text(lambda: texts)
    if duplicate is None:
        assert len(set(texts)) == len(texts)
    else:
        assert texts.count(duplicate) > 1


def test_digests_that_end_with_a_zero_byte_are_compared() -> None:
    """About one in 256 of the 5,000 texts has such a digest."""
    texts = [f"{n}" for n in range(5_000)]
    assert all(duplicate_text([text, "x", text].copy) == text for text in texts)
