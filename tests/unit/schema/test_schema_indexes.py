"""Compound and multi-valued indexes in schemas: refused, parsed, rendered and compared."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import SchemaInvalid
from mediator.schema.differences import differences
from mediator.schema.parse import parse_schema
from mediator.schema.renames import renamed_document
from mediator.schema.render import schema_document
from mediator.schema.tree import CompoundIndex

TEXT = {"type": "string"}
FIELDS = {"a": TEXT, "b": {"type": "integer"}, "c": {**TEXT, "group": "g"}, "d": {"type": "float"}}
TAGS = {"type": "list", "items": "string", "index": True, "max_length": 10}
MAX_ELEMENTS = 1_000
AT = "/classes/c"


def document(indexes: Any = (), **fields: Any) -> dict[str, Any]:
    return {"classes": {"c": {"fields": {**FIELDS, **fields}, "indexes": indexes}}}


def compound(*names: str) -> dict[str, Any]:
    return {"fields": list(names)}


def mistakes(document: Any) -> dict[str, str]:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("d", document)
    return {location.pointer: location.detail for location in caught.value.locations}


@pytest.mark.parametrize(
    ("indexes", "pointer", "detail"),
    [
        (compound("a", "b"), "/indexes", "must be an array"),
        ([["a", "b"]], "/indexes/0", "must be an object"),
        ([{}], "/indexes/0/fields", "is required"),
        ([{"fields": ["a", "b"], "unique": True}], "/indexes/0/unique", "is not known here"),
        ([compound("a")], "/indexes/0/fields", "at least 2"),
        ([compound("a", "b", "d", "a", "b")], "/indexes/0/fields", "at most 4"),
        ([compound("a", "$where")], "/indexes/0/fields/1", "match pattern"),
        ([compound("a", "id")], "/indexes/0/fields/1", "is no field of this class"),
        ([compound("a", "tgas")], "/indexes/0/fields/1", 'did you mean "tags"?'),
        ([compound("a", "a")], "/indexes/0/fields/1", "must not be there twice"),
        ([compound("a", "tags")], "/indexes/0/fields/1", "type list has no order to index"),
        ([compound("a", "c")], "/indexes/0/fields", "one cache group"),
        ([compound("a", "b"), compound("a", "b")], "/indexes/1", "is there already"),
        ([compound("a", "b")] * 17, "/indexes", "at most 16"),
    ],
)
def test_mistakes_in_compound_indexes_are_located(indexes: Any, pointer: str, detail: str) -> None:
    details = mistakes(document(indexes, tags=TAGS))
    assert detail in details[AT + pointer], details


@pytest.mark.parametrize(
    ("changed", "pointer", "detail"),
    [
        ({"items": "document"}, "/index", "type document has no order to index"),
        ({"type": "map"}, "/index", "type map has no order to index"),
        ({"max_length": MAX_ELEMENTS + 1}, "/max_length", "must be 1000 at most"),
    ],
)
def test_mistakes_in_multi_valued_indexes_are_located(
    changed: Any, pointer: str, detail: str
) -> None:
    [(location, message)] = mistakes(document(tags={**TAGS, **changed})).items()
    assert location == f"{AT}/fields/tags{pointer}"
    assert detail in message


def test_indexed_elements_are_bounded() -> None:
    unbounded = {name: member for name, member in TAGS.items() if name != "max_length"}
    assert "max_length" in mistakes(document(tags=unbounded))[f"{AT}/fields/tags/index"]
    for type_ in ("list", "set"):
        tags = {**TAGS, "type": type_, "max_length": MAX_ELEMENTS}
        field = parse_schema("d", document(tags=tags)).classes["c"].fields["tags"]
        assert field.has_element_index
        assert not field.has_ordered_index


def test_a_schema_is_parsed_as_it_was_rendered() -> None:
    schema = parse_schema("d", document([compound("b", "a"), compound("a", "b")], tags=TAGS))
    assert schema.classes["c"].indexes == (CompoundIndex(("b", "a")), CompoundIndex(("a", "b")))
    rendered = schema_document(schema)
    assert parse_schema("d", rendered) == schema
    del rendered["classes"]["c"]["indexes"]  # as stored before there were compound indexes
    assert parse_schema("d", rendered).classes["c"].indexes == ()


def test_a_difference_names_the_index() -> None:
    before = schema_document(parse_schema("d", document()))
    after = schema_document(parse_schema("d", document([compound("a", "b")])))
    [difference] = differences(before, after)
    assert (difference.kind, difference.node, difference.member) == ("changed", "c", "indexes")
    assert difference.after == [compound("a", "b")]


def test_fields_of_an_index_are_renamed_with_it() -> None:
    rendered = schema_document(parse_schema("d", document([compound("a", "b")])))
    renamed = renamed_document(rendered, {"c": {"a": "first", "b": "a"}})
    assert renamed["classes"]["c"]["indexes"] == [compound("first", "a")]
