"""The OpenAPI document of a database is valid, complete, and limited to the reader's classes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from app.api.openapi.class_schemas import conditions
from app.api.openapi.database_document import database_document
from app.api.openapi.document import data_paths
from mediator.schema.parse import parse_schema
from tests.unit.http.references import references_of

FIELDS: dict[str, Any] = {
    "name": {"type": "string", "required": True, "max_length": 20, "index": True},
    "kind": {"type": "string", "enum": ["a", "b"]},
    "code": {"type": "string", "pattern": "^[A-Z]{2}$", "default": "XX"},
    "word": {"type": "string", "pattern": r"(?i)^\pL+$"},
    "key": {"type": "string", "required": True, "default": "uuid"},
    "price": {"type": "decimal", "minimum": "0.50"},
    "stock": {"type": "integer", "minimum": 0, "maximum": 9, "default": 0},
    "image": {"type": "binary", "max_length": 4},
    "tags": {"type": "set", "items": "string", "max_length": 3},
    "names": {"type": "map", "items": "decimal"},
    "maker": {"type": "reference", "to": "makers"},
    "kin": {"type": "reference", "to": "makers", "index": True, "on_delete": "nullify"},
    "rivals": {
        "type": "set",
        "items": "reference",
        "to": "makers",
        "index": True,
        "max_length": 9,
        "on_delete": "nullify",
    },
    "order": {"type": "integer", "index": True},
    "updated": {"type": "timestamp", "updated": True, "required": True},
}
SCHEMA = parse_schema(
    "shop", {"classes": {"products": {"fields": FIELDS}, "makers": {"fields": {}}}}
)
PRODUCTS = SCHEMA.classes["products"]
DOCUMENT = database_document("shop", [*SCHEMA.classes.values()])
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_the_document_is_valid() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate(schema)


def test_every_reference_resolves() -> None:
    for reference in references_of(DOCUMENT):
        _, _, kind, name = reference.split("/")
        assert name in DOCUMENT["components"][kind], reference


def test_operation_ids_are_unique() -> None:
    names = [
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        if "operationId" in operation
    ]
    assert len(names) == len(set(names))


def test_the_routes_are_those_of_the_data_api() -> None:
    def paths_of(class_name: str) -> set[str]:
        ids = ("id", "run", "flow", "view", "query", "stream", "ticket")
        placeholders = {name: f"{{{name}}}" for name in ids}
        values = {"database": "shop", "class": class_name, **placeholders}
        return {path.format_map(values) for path in data_paths()}

    assert set(DOCUMENT["paths"]) == paths_of("products") | paths_of("makers")


def test_a_field_is_described_with_its_constraints() -> None:
    fields = SCHEMAS["products"]["properties"]
    assert fields["name"] == {"type": "string", "maxLength": 20}
    assert fields["kind"] == {"type": ["string", "null"], "enum": ["a", "b", None]}
    assert fields["code"]["pattern"] == "^[A-Z]{2}$"
    assert fields["code"]["default"] == "XX"
    assert fields["word"]["description"] == r"Has a match of the pattern (?i)^\pL+$ of RE2."
    assert fields["key"]["description"] == "Unless given, a new UUID."
    assert fields["price"]["description"] == "At least 0.5."
    assert fields["stock"] == {
        "type": ["integer", "null"],
        "format": "int64",
        "minimum": 0,
        "maximum": 9,
        "default": 0,
    }
    assert fields["image"]["maxLength"] == len("AAAAAA==")
    assert fields["tags"]["maxItems"] == 3
    assert fields["maker"]["description"] == "The id of an object of makers."
    assert fields["rivals"]["description"] == (
        "Sorted, without duplicates. Each has to exist. If one is deleted, it is removed from here."
    )
    assert fields["kin"]["description"] == (
        "The id of an object of makers. It has to exist. If it is deleted, this becomes null."
    )
    assert fields["updated"]["readOnly"] is True


def test_bodies_of_writes_are_described() -> None:
    assert SCHEMAS["products.new"]["required"] == ["name"]
    for suffix in ("new", "patch", "operators"):
        schema = SCHEMAS[f"products.{suffix}"]
        assert not schema["additionalProperties"]
        assert "updated" not in schema["properties"]
    patch = SCHEMAS["products.patch"]["properties"]
    assert patch["name"]["type"] == "string"  # it is required: null cannot remove it
    assert patch["names"]["additionalProperties"]["type"] == ["string", "null"]
    operators = {name: set(SCHEMAS[f"Operators.{name}"]["properties"]) for name in ("set.string",)}
    assert operators == {"set.string": {"set", "unset", "remove", "add_to_set"}}


def test_the_owner_of_a_new_object_need_not_be_named() -> None:
    fields = {"by": {"type": "string", "required": True, "index": True}}
    schema = parse_schema("shop", {"classes": {"notes": {"owner_field": "by", "fields": fields}}})
    schemas = database_document("shop", [schema.classes["notes"]])["components"]["schemas"]
    assert "required" not in schemas["notes.new"]
    owner = schemas["notes.new"]["properties"]["by"]
    assert owner["description"] == "Unless given, the subject of the creator."


def test_conditions_on_indexed_fields_are_parameters() -> None:
    conditions = DOCUMENT["components"]["parameters"]["products.conditions"]["schema"]["properties"]
    ranges = {"lt", "le", "gt", "ge", "in", "between"}
    fields = ("name", "kin")
    names = {*fields, *(f"{name}.{operator}" for name in fields for operator in ranges)}
    # `order` is a parameter already, so equality is written as `order.eq`.
    order_conditions = {"order.eq", *(f"order.{operator}" for operator in ranges)}
    assert set(conditions) == names | order_conditions | {"rivals.contains"}


def test_a_class_that_is_not_shown_is_not_named() -> None:
    document = database_document("shop", [PRODUCTS])
    maker = document["components"]["schemas"]["products"]["properties"]["maker"]
    assert maker["description"] == "The id of an object."
    assert "makers" not in str(document)


@pytest.mark.parametrize(
    ("pattern", "is_shared"),
    [
        (r"^[A-Z]{2}-\d+$", True),
        (r"^(?:a|b)*\.x$", True),
        (r"[\w.-]+@[\w-]+", True),
        (r"(?i)a", False),
        (r"(?P<n>a)", False),
        (r"\pL", False),
        (r"\Aa\z", False),
        (r"[[:alpha:]]", False),
        (r"\s", False),  # ECMAScript counts more characters
        (r"[\w-.]", False),  # a range without a start in ECMAScript
        ("a]", False),
        ("a{", False),
        # If brackets were ambiguous, the parser would try 2 to the power of 200 readings.
        ("[^a]" * 200 + r"\z", False),
        ("[^a]" * 200, True),
    ],
)
def test_a_pattern_is_stated_if_it_means_the_same_in_ecmascript(
    pattern: str, is_shared: bool
) -> None:
    fields = {"f": {"type": "string", "pattern": pattern}}
    schema = parse_schema("shop", {"classes": {"c": {"fields": fields}}})
    document = database_document("shop", [schema.classes["c"]])
    field = document["components"]["schemas"]["c"]["properties"]["f"]
    assert (field.get("pattern") == pattern) is is_shared
    assert ("description" in field) is not is_shared


def test_conditions_that_any_kind_of_index_serves_are_parameters() -> None:
    tags = {"type": "set", "items": "integer", "index": True, "max_length": 9}
    fields = {"kind": {"type": "string"}, "rank": {"type": "integer"}, "tags": tags}
    class_ = {"fields": fields, "indexes": [{"fields": ["kind", "rank"]}]}
    schema = parse_schema("shop", {"classes": {"notes": class_}}).classes["notes"]
    properties = conditions(schema)["schema"]["properties"]
    assert {name.partition(".")[0] for name in properties} == {"kind", "tags"}
    assert properties["tags.contains"]["type"] == "integer"
    assert "kind.ge" in properties
