"""Entity tags: every formatted tag is parsed, and no other text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.preconditions import (
    Preconditions,
    Tags,
    binding_versions,
    format_tag,
    gzip_tag,
    parse_tag,
    parse_tags,
)
from app.http.problems import HttpError
from mediator.base.errors import PreconditionFailed

groups = st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True)
versions = st.dictionaries(groups, st.none() | st.integers(0, 2**63 - 1), min_size=1, max_size=5)


@given(st.integers(1, 10**9), versions)
def test_a_printed_tag_is_read_back(schema_version: int, versions: dict[str, int | None]) -> None:
    tag = format_tag(schema_version, sorted(versions), versions)
    parsed = parse_tag(tag)
    assert parsed is not None
    assert (parsed.schema_version, dict(parsed.versions)) == (schema_version, versions)


@given(st.integers(1, 10**9), versions)
def test_the_tag_of_a_coding_names_the_same_version(
    schema_version: int, versions: dict[str, int | None]
) -> None:
    tag = format_tag(schema_version, sorted(versions), versions)
    assert parse_tag(gzip_tag(tag)) == parse_tag(tag)
    assert parse_tags(f"{gzip_tag(tag)}, W/{gzip_tag(tag)}", "If-Match").tags == (tag, f"W/{tag}")
    assert parse_tags(gzip_tag(tag), "If-None-Match", codings=False).tags == (gzip_tag(tag),)
    assert parse_tag(gzip_tag(gzip_tag(tag))) is None


@given(versions, versions)
def test_tags_differ_where_versions_differ(
    one: dict[str, int | None], other: dict[str, int | None]
) -> None:
    tags = {format_tag(1, sorted(v), v) for v in (one, other)}
    assert len(tags) == (1 if one == other else 2)


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    parsed = parse_tag(text)
    if parsed is not None:
        assert parse_tag(format_tag(parsed.schema_version, list(parsed.versions), parsed.versions))


@given(st.lists(versions.map(lambda v: format_tag(1, sorted(v), v)), min_size=1, max_size=4))
def test_a_list_of_tags_is_read_in_any_spacing(tags: list[str]) -> None:
    assert parse_tags(" , ".join(tags), "If-Match").tags == tuple(tags)
    assert parse_tags(",," + ",".join(tags) + " ,", "If-Match").tags == tuple(tags)


@pytest.mark.parametrize(
    "value", ["", "abc", '"a', '"a" "b"', '"a",b', "* , *", 'w/"a"', '"a b"', '"a"x', '*,"a"']
)
def test_malformed_lists_are_refused(value: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_tags(value, "If-None-Match")
    assert caught.value.type.status == 400
    assert caught.value.locations[0].pointer == "If-None-Match"


def test_only_tags_of_the_resource_bind() -> None:
    tags = Tags(
        (
            '"j1.main:5"',
            'W/"j1.main:6"',
            '"j2.main:7"',
            '"j1.hits:8.main:9"',
            '"j1.main:-"',
            '"else"',
        )
    )
    assert binding_versions(tags, ["main"], 1) == ({"main": 5}, {"main": None})


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "expected"),
    [
        (None, None, False),
        ("*", None, False),
        ('"now"', None, False),
        ('"old", "now"', None, False),
        ('"old"', None, PreconditionFailed),
        ('W/"now"', None, PreconditionFailed),
        (None, "*", True),
        (None, '"now"', True),
        (None, 'W/"now"', True),
        (None, '"old"', False),
        ('"now"', '"now"', True),
        ('"old"', '"now"', PreconditionFailed),
        ('"now"', '"old"', False),
    ],
)
def test_reads_follow_the_order_of_rfc_9110(
    if_match: str | None, if_none_match: str | None, expected: bool | type[Exception]
) -> None:
    conditions = Preconditions(
        (if_match and parse_tags(if_match, "If-Match")) or None,
        (if_none_match and parse_tags(if_none_match, "If-None-Match")) or None,
    )
    if isinstance(expected, bool):
        assert conditions.not_modified('"now"') is expected
    else:
        with pytest.raises(expected):
            conditions.not_modified('"now"')
