"""Indexed paths in schemas: refused, parsed and rendered."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import SchemaInvalid
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import Field

DOCUMENT = {"type": "document"}
AT = "/classes/c/fields/f"


def document(field: dict[str, Any], paths: Any) -> dict[str, Any]:
    return {"classes": {"c": {"fields": {"f": {**field, "indexed_paths": paths}}}}}


def map_of(items: str) -> dict[str, Any]:
    return {"type": "map", "items": items}


@pytest.mark.parametrize(
    ("field", "paths", "pointer", "detail"),
    [
        ({"type": "string"}, ["a"], "", "has no meaning for type string"),
        ({"type": "list", "items": "document"}, ["a"], "", "has no meaning for type list"),
        (DOCUMENT, "a", "", "must be an array"),
        (DOCUMENT, None, "", "must be an array"),
        (DOCUMENT, [1], "/0", "must be a valid string"),
        (DOCUMENT, [""], "/0", "at least 1 character"),
        (DOCUMENT, ["a" * 201], "/0", "at most 200 characters"),
        (DOCUMENT, [str(i) for i in range(17)], "", "at most 16 items"),
        (DOCUMENT, ["a", "b", "a"], "/2", "must not be there twice"),
        (DOCUMENT, ["a\0b"], "/0", "must not contain NUL"),
        (DOCUMENT, ["a.0.b"], "/0", "must not have a number as a key"),
        (DOCUMENT, [".".join("a" * 33)], "/0", "leads deeper than 32 levels"),
        (map_of("integer"), ["a.b"], "/0", "must be one key"),
        (map_of("decimal"), ["a"], "/0", "must be of a map of float, integer, string or document"),
        (map_of("document"), ["a"], "/0", "must lead into the documents"),
    ],
)
def test_mistakes_in_indexed_paths_are_located(
    field: dict[str, Any], paths: Any, pointer: str, detail: str
) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("d", document(field, paths))
    details = {location.pointer: location.detail for location in caught.value.locations}
    assert detail in details[f"{AT}/indexed_paths{pointer}"], details


@pytest.mark.parametrize(
    ("field", "path", "keys"),
    [
        (DOCUMENT, "geo.lat", ("geo", "lat")),
        (DOCUMENT, "0", ("0",)),
        (DOCUMENT, "$where", ("$where",)),
        (DOCUMENT, ".".join("a" * 32), ("a",) * 32),
        (map_of("integer"), "2024", ("2024",)),
        (map_of("document"), "home.city", ("home", "city")),
    ],
)
def test_indexed_paths_are_parsed_and_rendered(
    field: dict[str, Any], path: str, keys: tuple[str, ...]
) -> None:
    schema = parse_schema("d", document(field, [path]))
    assert schema.classes["c"].fields["f"].indexed_keys == (keys,)
    rendered = schema_document(schema)
    assert rendered["classes"]["c"]["fields"]["f"]["indexed_paths"] == [path]
    assert parse_schema("d", rendered) == schema
    without = schema_document(parse_schema("d", document(field, [])))
    assert "indexed_paths" not in without["classes"]["c"]["fields"]["f"]


def test_a_field_has_no_indexed_paths_by_default() -> None:
    [field] = parse_schema("d", document(DOCUMENT, [])).classes["c"].fields.values()
    assert isinstance(field, Field)
    assert field.indexed_keys == ()
