"""Which changes of a class's layout invalidate the class (docs/coherence.md)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.coherence.layouts import merge_layouts

Groups = dict[str, str]
layouts = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("uvw"))


def layout(
    groups: Groups,
    visibility: str = "public",
    schema: str = "1",
    generation: str = "news_1/articles_1",
    **stored: str | None,
) -> dict[str, Any]:
    """Return a layout whose fields have their names, but for those that are `stored` by others."""
    names = sorted({"main", *groups.values()})
    shown = {"groups": groups, "object_groups": names, "visibility": visibility, "schema": schema}
    shown["generation"] = generation
    return {**shown, "names": stored or {name: name for name in groups}}


def keys(groups: Groups, shown: str | None) -> set[str]:
    """The groups that a resource is reported and tested by: a field, or the whole object."""
    return {"main", *groups.values()} if shown is None else {groups[shown]}


@pytest.mark.parametrize(
    ("before", "after", "invalidates"),
    [
        (layout({"a": "main"}), layout({"a": "main"}, schema="2"), False),
        (layout({"a": "main"}), layout({"a": "main", "b": "main"}), False),
        (layout({"a": "main", "b": "u"}), layout({"a": "main"}), False),
        (layout({"a": "main"}), layout({"a": "u"}), True),
        (layout({"a": "main", "b": "u"}), layout({"a": "u", "b": "u"}), True),
        (layout({"a": "main"}), layout({"a": "main", "b": "u"}), True),
        (layout({"a": "main"}), layout({"a": "main"}, "private"), True),
        (layout({"a": "main"}), layout({"b": "main"}, a="b"), True),
        (layout({"a": "main", "b": "main"}), layout({"a": "main"}, a="a", b=None), True),
        (layout({"b": "main"}, a="b"), layout({"b": "main", "c": "main"}, a="b", c="c"), False),
        (layout({"b": "main"}, a=None, b="b"), layout({"b": "main"}, a=None, b="b"), False),
        (layout({"a": "main"}), layout({"a": "main"}, generation="news_1/articles_2"), True),
        (layout({"a": "main"}), layout({"a": "main"}, generation="news_2/articles_1"), True),
    ],
)
def test_a_class_is_invalidated_only_where_copies_could_be_missed(
    before: dict[str, Any], after: dict[str, Any], invalidates: bool
) -> None:
    assert merge_layouts(before, after)[1] == invalidates


@given(st.lists(layouts, min_size=2, max_size=6))
def test_a_write_covers_a_key_of_every_copy_that_shows_what_it_changed(all_: list[Groups]) -> None:
    """Whatever happened in between: copies stay while layouts come and go."""
    known, copies = layout(all_[0]), [all_[0]]
    for groups in all_[1:]:
        known, invalidates = merge_layouts(known, layout(groups))
        copies = [groups] if invalidates else [*copies, groups]
        for name, written in groups.items():
            for under in copies:
                assert written in keys(under, None)
                assert name not in under or written in keys(under, name)
