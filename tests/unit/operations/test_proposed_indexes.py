"""Indexes that would help a query: which are proposed, and the patch that adds one."""

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
OF: Final = SCHEMA.classes["c"]


def fragment(system: str, *names: str) -> Fragment:
    fields = {name: OF.fields[name] for name in names}
    return Fragment(system, "d", "c", fields, {"main": names})


WHOLE: Final = ClassRoute(OF, 1, (fragment("s", *OF.fields),))
APART: Final = ClassRoute(
    OF, 1, (fragment("s", *(n for n in OF.fields if n != "at")), fragment("t", "at"))
)
TIME: Final = "2026-01-01T00:00:00Z"
OPEN: Final = {"eq": ["status", "open"]}
SINCE: Final = {"ge": ["at", TIME]}
COSTLY: Final = {"gt": ["total", "9"]}


def proposed(document: Any, route: ClassRoute = WHOLE) -> tuple[tuple[str, ...], ...]:
    return proposed_indexes(parse_query_document(document, SCHEMA, "c").query, route)


def every(*conditions: Any, **members: Any) -> Any:
    return {"filter": {"and": list(conditions)}, **members}


@pytest.mark.parametrize(
    ("document", "indexes"),
    [
        ({}, []),
        ({"filter": OPEN}, [("status",)]),
        ({"filter": {"eq": ["city", "x"]}}, []),
        ({"filter": {"eq": ["city", None]}, "order": ["city"]}, []),
        (every(OPEN, SINCE), [("status", "at")]),
        (every(SINCE, OPEN), [("status", "at")]),
        (every(SINCE, COSTLY), [("at",)]),
        (every(OPEN, order=[["at", "desc"]]), [("status", "at")]),
        (every(OPEN, COSTLY, order=["at"]), [("status", "at")]),
        (every(COSTLY, order=["at"]), [("total",)]),
        (every(SINCE, order=["at", "total"]), [("at", "total")]),
        (every(OPEN, order=["at", ["total", "desc"]]), [("status",)]),
        (every(OPEN, order=[["at", "desc"], ["id", "desc"]]), [("status", "at")]),
        ({"order": ["status", "at"]}, [("status", "at")]),
        (every({"eq": ["kind", "k"]}, SINCE), []),
        ({"filter": {"eq": ["kind", "k"]}}, []),
        (every({"eq": ["kind", "k"]}, OPEN), [("kind", "status")]),
        (every({"eq": ["at", TIME]}, {"eq": ["kind", "k"]}), []),
        (every(OPEN, {"ge": ["hits", 3]}), [("status",)]),
        (every(OPEN, {"in": ["total", ["1"]]}), [("status", "total")]),
        (every({"eq": ["city", "x"]}, {"contains": ["tags", "a"]}), [("tags",)]),
        (every(OPEN, {"contains": ["marks", 1]}), [("status",), ("marks",)]),
        ({"filter": {"contains": ["words", "a"]}}, []),
        ({"filter": {"contains": ["status", "a"]}}, []),
        ({"filter": {"contains": ["more.a", "a"]}}, []),
        ({"filter": {"eq": ["more.a", "a"]}, "order": ["more.a"]}, [("more.a",)]),
        ({"filter": {"between": ["more.a", 1, 2.5]}}, [("more.a",)]),
        (every(OPEN, {"in": ["more.a.b", [1, "x"]]}), [("status",), ("more.a.b",)]),
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
        (every(OPEN, aggregate={"group": ["at"], "compute": {"n": {"count": "*"}}}), [("status",)]),
    ],
)
def test_indexes_are_proposed_by_what_they_answer(
    document: Any, indexes: list[tuple[str, ...]]
) -> None:
    assert list(proposed(document)) == indexes


def test_an_index_has_no_more_fields_than_it_may() -> None:
    names = ["status", "city", "kind", "total"]
    equal = [{"eq": [name, "1"]} for name in names]
    assert proposed(every(*equal, SINCE)) == (tuple(names),)


def test_an_index_is_proposed_of_fields_in_one_place() -> None:
    assert proposed(every(OPEN, SINCE, COSTLY), APART) == (("status",),)
    assert proposed(every(SINCE, order=["at"]), APART) == (("at",),)


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
    after = parse_schema("d", merge_patch(document, patch)).classes["c"]
    if len(names) > 1:
        assert after.indexes == (*OF.indexes, CompoundIndex(names))
    else:
        name, _, path = names[0].partition(".")
        assert path in after.fields[name].indexed_paths if path else after.fields[name].index
    assert index_patch(merge_patch(document, patch), "c", names) is None


@pytest.mark.parametrize(
    "names", [("city",), ("kind", "at"), ("gone",), ("status", "gone"), ("more.b.c",), ("gone.a",)]
)
def test_what_cannot_be_added_has_no_patch(names: tuple[str, ...]) -> None:
    assert index_patch(schema_document(SCHEMA), "c", names) is None
    assert index_patch(schema_document(SCHEMA), "other", ("status",)) is None


def test_bounds_that_are_tighter_stay() -> None:
    tags = {"type": "list", "items": "string", "max_length": 5}
    document = schema_document(parse_schema("d", {"classes": {"c": {"fields": {"t": tags}}}}))
    assert index_patch(document, "c", ("t",)) == {
        "classes": {"c": {"fields": {"t": {"index": True}}}}
    }
