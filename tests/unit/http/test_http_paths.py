"""Raw paths and queries: decoded once, strictly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.cursors import Cursors
from app.api.object_ids import derived_id, new_id
from app.api.transfer import Line, split_lines
from app.http.paths import decode_segment, parse_integer, parse_query
from app.http.problems import HttpError
from mediator.changes.feed import PositionGone


@given(st.text(st.characters(codec="utf-8", exclude_characters="/")))
def test_quoting_is_decoded_once(text: str) -> None:
    assert decode_segment(quote(text, safe="").encode(), "id") == text


@pytest.mark.parametrize(
    "raw", [b"%", b"%4", b"%zz", b"a%2", b"%ff", b"%c3", b"\xff", b"a%2Fb", b"%2f"]
)
def test_malformed_encoding_is_refused(raw: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        decode_segment(raw, "id")
    assert caught.value.locations[0].pointer == "id"


@pytest.mark.parametrize("raw", [b"a=1&a=2", b"b=1", b"a", b"=1", b"a=%", b"a=1&%61=2"])
def test_odd_queries(raw: bytes) -> None:
    if raw == b"a":
        assert parse_query(raw, frozenset("a")) == {"a": ""}
        return
    with pytest.raises(HttpError):
        parse_query(raw, frozenset("a"))


def test_a_plus_is_a_space_in_a_query() -> None:
    assert parse_query(b"a=x+y%2B&&", frozenset("a")) == {"a": "x y+"}


@pytest.mark.parametrize("text", ["", "-1", "+1", "0", "11", "1e1", " 1", "\uff11", "9" * 5000])
def test_numbers_out_of_bounds(text: str) -> None:
    with pytest.raises(HttpError):
        parse_integer(text, "limit", minimum=1, maximum=10)


json_values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
queries = st.lists(st.none() | st.text(max_size=8), max_size=3)


@given(queries, queries, st.lists(json_values, min_size=1, max_size=2))
def test_a_cursor_opens_for_its_own_query_only(
    query: list[str | None], other: list[str | None], position: list[object]
) -> None:
    cursors = Cursors(b"secret")
    sealed = cursors.seal(query, "a_1", position)
    assert cursors.open(query, "a_1", sealed) == position
    if other != query:
        with pytest.raises(HttpError):
            cursors.open(other, "a_1", sealed)
    with pytest.raises(HttpError):
        Cursors(b"other secret").open(query, "a_1", sealed)


@given(st.text(max_size=40))
def test_no_text_is_a_cursor(text: str) -> None:
    with pytest.raises(HttpError):
        Cursors(b"secret").open((), "a_1", text)


def test_a_cursor_of_an_earlier_database_is_gone() -> None:
    cursors = Cursors(b"secret")
    with pytest.raises(PositionGone):
        cursors.open(("a",), "a_2", cursors.seal(("a",), "a_1", ["id", 5]))


def test_a_changed_cursor_is_refused() -> None:
    cursors = Cursors(b"secret")
    sealed = cursors.seal(("a",), "a_1", ["id", 5])
    for at in range(len(sealed)):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        with pytest.raises(HttpError):
            cursors.open(("a",), "a_1", changed)


def test_ids_of_the_server_are_uuids_in_order() -> None:
    ids = [new_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert [i[:8] for i in ids] == sorted(i[:8] for i in ids)
    assert all(i[14] == "7" and i[19] in "89ab" for i in ids)
    assert derived_id("f" * 32)[14] == "8"
    assert derived_id("0" * 32) == derived_id("0" * 32)


@given(
    st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"x")), max_size=8),
    st.integers(1, 7),
)
async def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], size: int) -> None:
    body = b"\n".join(lines)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    max_bytes = 4
    expected = [
        Line(number, line.strip(b" \t\r") if len(line) <= max_bytes else None)
        for number, line in enumerate(lines, 1)
        if len(line) > max_bytes or line.strip(b" \t\r")
    ]
    assert [line async for line in split_lines(chunks(), max_bytes)] == expected
