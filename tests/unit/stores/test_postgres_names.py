"""Identifiers fit into PostgreSQL's 63 bytes and never collide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mediator.stores.postgres.layout import (
    column_name,
    fit_identifier,
    index_name,
    retired_name,
    table_name,
    version_name,
)

LOWER = st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True)
FIELD = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,62}", fullmatch=True)


@given(LOWER, LOWER, FIELD)
def test_every_name_fits(database: str, class_name: str, field: str) -> None:
    table = table_name(database, class_name)
    names = (
        table,
        column_name(field),
        version_name(field),
        index_name(table, field),
        retired_name(field, 10**9),
    )
    assert all(0 < len(name.encode()) <= 63 for name in names)


@given(st.lists(st.tuples(LOWER, LOWER), unique=True, min_size=2, max_size=2))
def test_two_classes_never_share_a_table(pairs: list[tuple[str, str]]) -> None:
    assert table_name(*pairs[0]) != table_name(*pairs[1])


def test_long_names_that_differ_only_at_the_end_stay_distinct() -> None:
    first, second = (table_name("d" * 63, "c" * 62 + end) for end in "ab")
    assert first != second
    assert len(first) == len(second) == 63


def test_the_boundary_between_database_and_class_is_distinguished() -> None:
    assert table_name("a", "b_c") != table_name("a_b", "c")


@given(FIELD)
def test_a_field_never_has_the_name_of_an_internal_column(field: str) -> None:
    reserved = {
        "id",
        "_creation_version",
        "_deleted",
        "_nulls",
        "tableoid",
        "xmin",
        "cmin",
        "xmax",
        "ctid",
    }
    assert column_name(field) not in reserved
    assert column_name(field) != retired_name(field, 1)


def test_a_field_is_never_stored_in_a_system_column() -> None:
    assert column_name("xmin") != "xmin"
    assert column_name("title") == "title"


@given(st.text(min_size=64, max_size=300))
def test_long_names_in_any_script_fit(name: str) -> None:
    assert len(fit_identifier(name).encode()) <= 63
