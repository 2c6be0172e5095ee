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
    """Return a layout; `stored` are the stored names of fields, by default the fields' own."""
    names = sorted({"main", *groups.values()})
    document = {
        "groups": groups,
        "object_groups": names,
        "visibility": visibility,
        "schema": schema,
    }
    document["generation"] = generation
    return {**document, "names": stored or {name: name for name in groups}}


def keys(groups: Groups, field: str | None) -> set[str]:
    """Return the groups under which a field, or the whole object, is reported and tested."""
    return {"main", *groups.values()} if field is None else {groups[field]}


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
def test_a_write_covers_a_key_of_every_copy_with_the_changed_field(history: list[Groups]) -> None:
    """Copies outlive any number of layouts."""
    merged, copies = layout(history[0]), [history[0]]
    for groups in history[1:]:
        merged, invalidates = merge_layouts(merged, layout(groups))
        copies = [groups] if invalidates else [*copies, groups]
        for name, group in groups.items():
            for copy in copies:
                assert group in keys(copy, None)
                assert name not in copy or group in keys(copy, name)
