"""Tags: of one length, so that none is a substring of another, and distinct for each key."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sketch.protocol.keys import TAG_DIGITS, tag_of


@given(st.text(max_size=200))
def test_a_tag_is_of_32_hexadecimal_digits(key: str) -> None:
    assert re.fullmatch(f"[0-9a-f]{{{TAG_DIGITS}}}", tag_of("news", key))


def test_each_key_of_each_database_has_its_own_tag() -> None:
    keys = [f"articles/{number}#{group}" for number in range(500) for group in ("text", "hits")]
    tags = {tag_of(database, key) for database in ("news", "new") for key in keys}
    assert len(tags) == 2 * len(keys)


def test_tags_do_not_change() -> None:
    """Caches remember them for as long as they keep an answer, over any release."""
    assert tag_of("news", "articles/7#text") == "46dd4956a0c7b1239de6d88b003710d3"
