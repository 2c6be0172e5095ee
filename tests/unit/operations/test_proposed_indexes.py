"""Proposed indexes for a query, and the patch that adds one."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mediator.query.parser import parse_query_document
from mediator.query.proposed_indexes import proposed_indexes
from mediator.routing.model import ClassRoute
from mediator.schema.added_indexes import index_patch
from mediator.schema.documents import merge_patch
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import CompoundIndex
from mediator.stores.port import Fragment

CLASS: Final[dict[str, Any]] = {
    "indexes": [{"fields": ["kind", "at"]}],
    "fields": {
        "status": {"type": "string"},
        "city": {"type": "string", "index": True},
        "kind": {"type": "string"},
        "at": {"type": "timestamp"},
        "total": {"type": "decimal"},
        "hits": {"type": "integer", "group": "hits"},
        "tags": {"type": "set", "items": "string"},
        "marks": {"type": "list", "items": "integer", "max_length": 5_000},
        "words": {"type": "list", "items": "string", "index": True, "max_length": 9},
        "docs": {"type": "list", "items": "document"},
        "more": {"type": "document", "indexed_paths": ["b.c"]},
        "prices": {"type": "map", "items": "integer"},
    },
}
SCHEMA: Final = parse_schema("d", {"classes": {"c": CLASS}})
CLASS_SCHEMA: Final = SCHEMA.classes["c"]


def fragment(system: str, *names: str) -> Fragment:
    fields = {name: CLASS_SCHEMA.fields[name] for name in names}
    return Fragment(system, "d", "c", fields, {"main": names})


WHOLE: Final = ClassRoute(CLASS_SCHEMA, 1, (fragment("s", *CLASS_SCHEMA.fields),))
SPLIT: Final = ClassRoute(
    CLASS_SCHEMA,
    1,
    (fragment("s", *(n for n in CLASS_SCHEMA.fields if n != "at")), fragment("t", "at")),
)
TIME: Final = "2026-01-01T00:00:00Z"
OPEN: Final = {"eq": ["status", "open"]}
SINCE: Final = {"ge": ["at", TIME]}
COSTLY: Final = {"gt": ["total", "9"]}


def proposed(document: Any, route: ClassRoute = WHOLE) -> tuple[tuple[str, ...], ...]:
    return proposed_indexes(parse_query_document(document, SCHEMA, "c").query, route)


def all_of(*conditions: Any, **members: Any) -> Any:
    return {"filter": {"and": list(conditions)}, **members}


@pytest.mark.parametrize(
    ("document", "indexes"),
    [
        ({}, []),
        ({"filter": OPEN}, [("status",)]),
        ({"filter": {"eq": ["city", "x"]}}, []),
        ({"filter": {"eq": ["city", None]}, "order": ["city"]}, []),
        (all_of(OPEN, SINCE), [("status", "at")]),
        (all_of(SINCE, OPEN), [("status", "at")]),
        (all_of(SINCE, COSTLY), [("at",)]),
        (all_of(OPEN, order=[["at", "desc"]]), [("status", "at")]),
        (all_of(OPEN, COSTLY, order=["at"]), [("status", "at")]),
        (all_of(COSTLY, order=["at"]), [("total",)]),
        (all_of(SINCE, order=["at", "total"]), [("at", "total")]),
        (all_of(OPEN, order=["at", ["total", "desc"]]), [("status",)]),
        (all_of(OPEN, order=[["at", "desc"], ["id", "desc"]]), [("status", "at")]),
        ({"order": ["status", "at"]}, [("status", "at")]),
        (all_of({"eq": ["kind", "k"]}, SINCE), []),
        ({"filter": {"eq": ["kind", "k"]}}, []),
        (all_of({"eq": ["kind", "k"]}, OPEN), [("kind", "status")]),
        (all_of({"eq": ["at", TIME]}, {"eq": ["kind", "k"]}), []),
        (all_of(OPEN, {"ge": ["hits", 3]}), [("status",)]),
        (all_of(OPEN, {"in": ["total", ["1"]]}), [("status", "total")]),
        (all_of({"eq": ["city", "x"]}, {"contains": ["tags", "a"]}), [("tags",)]),
        (all_of(OPEN, {"contains": ["marks", 1]}), [("status",), ("marks",)]),
        ({"filter": {"contains": ["words", "a"]}}, []),
        ({"filter": {"contains": ["status", "a"]}}, []),
        ({"filter": {"contains": ["more.a", "a"]}}, []),
        ({"filter": {"eq": ["more.a", "a"]}, "order": ["more.a"]}, [("more.a",)]),
        ({"filter": {"between": ["more.a", 1, 2.5]}}, [("more.a",)]),
        (all_of(OPEN, {"in": ["more.a.b", [1, "x"]]}), [("status",), ("more.a.b",)]),
        ({"filter": {"eq": ["more.b.c", "a"]}}, []),
        ({"filter": {"eq": ["more.a", True]}}, []),
        ({"filter": {"in": ["more.a", ["x", None]]}}, []),
        ({"filter": {"ne": ["more.a", "a"]}}, []),
        ({"filter": {"eq": ["more.a.0", "a"]}}, []),
        ({"filter": {"eq": ["more." + "a" * 201, "a"]}}, []),
        ({"filter": {"eq": ["prices.eur", 1]}}, []),
        ({"filter": {"or": [OPEN, SINCE]}}, []),
        ({"filter": {"not": OPEN}}, []),
        ({"filter": {"ne": ["status", "open"]}}, []),
        ({"filter": {"eq": ["id", "x"]}}, []),
        (
            all_of(OPEN, aggregate={"group": ["at"], "compute": {"n": {"count": "*"}}}),
            [("status",)],
        ),
    ],
)
def test_indexes_are_proposed_for_conditions_and_orders(
    document: Any, indexes: list[tuple[str, ...]]
) -> None:
    assert list(proposed(document)) == indexes


def test_an_index_has_a_maximum_of_fields() -> None:
    names = ["status", "city", "kind", "total"]
    equal = [{"eq": [name, "1"]} for name in names]
    assert proposed(all_of(*equal, SINCE)) == (tuple(names),)


def test_an_index_is_proposed_for_fields_of_one_fragment() -> None:
    assert proposed(all_of(OPEN, SINCE, COSTLY), SPLIT) == (("status",),)
    assert proposed(all_of(SINCE, order=["at"]), SPLIT) == (("at",),)


@pytest.mark.parametrize(
    ("names", "members"),
    [
        (("status",), {"fields": {"status": {"index": True}}}),
        (("tags",), {"fields": {"tags": {"index": True, "max_length": 1_000}}}),
        (("marks",), {"fields": {"marks": {"index": True, "max_length": 1_000}}}),
        (("more.a",), {"fields": {"more": {"indexed_paths": ["b.c", "a"]}}}),
        (("prices.eur",), {"fields": {"prices": {"indexed_paths": ["eur"]}}}),
        (
            ("status", "at"),
            {"indexes": [{"fields": ["kind", "at"]}, {"fields": ["status", "at"]}]},
        ),
    ],
)
def test_a_patch_adds_an_index(names: tuple[str, ...], members: Any) -> None:
    document = schema_document(SCHEMA)
    patch = index_patch(document, "c", names)
    assert patch == {"classes": {"c": members}}
    patched_class = parse_schema("d", merge_patch(document, patch)).classes["c"]
    if len(names) > 1:
        assert patched_class.indexes == (*CLASS_SCHEMA.indexes, CompoundIndex(names))
    else:
        name, _, path = names[0].partition(".")
        assert (
            path in patched_class.fields[name].indexed_paths
            if path
            else patched_class.fields[name].index
        )
    assert index_patch(merge_patch(document, patch), "c", names) is None


@pytest.mark.parametrize(
    "names", [("city",), ("kind", "at"), ("gone",), ("status", "gone"), ("more.b.c",), ("gone.a",)]
)
def test_an_index_that_cannot_be_added_has_no_patch(names: tuple[str, ...]) -> None:
    assert index_patch(schema_document(SCHEMA), "c", names) is None
    assert index_patch(schema_document(SCHEMA), "other", ("status",)) is None


def test_tighter_bounds_stay() -> None:
    tags = {"type": "list", "items": "string", "max_length": 5}
    document = schema_document(parse_schema("d", {"classes": {"c": {"fields": {"t": tags}}}}))
    assert index_patch(document, "c", ("t",)) == {
        "classes": {"c": {"fields": {"t": {"index": True}}}}
    }
