"""Unique constraints: located mistakes in schemas, and claims of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from mediator.base.errors import Invalid, SchemaInvalid
from mediator.operations.patch import parse_update
from mediator.schema.differences import differences
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType, Value
from mediator.schema.unique import claims_of, constraint_fields, constraint_name
from mediator.schema.values import Codec

TEXT = {"type": "string"}
AT = "/classes/users"


def document(fields: Any, unique: Any = ()) -> dict[str, Any]:
    return {"classes": {"users": {"fields": fields, "unique": list(unique)}}}


def class_of(fields: Any, unique: Any = ()) -> ClassSchema:
    return parse_schema("shop", document(fields, unique)).classes["users"]


@pytest.mark.parametrize(
    ("fields", "unique", "pointer", "detail"),
    [
        ({"a": {"type": "float", "unique": True}}, [], "/fields/a/unique", "type float"),
        ({"a": {"type": "document", "unique": True}}, [], "/fields/a/unique", "type document"),
        ({"a": {"type": "set", "items": "string", "unique": True}}, [], "/fields/a/unique", "set"),
        ({"a": {"type": "timestamp", "updated": True, "unique": True}}, [], "/fields/a/unique", ""),
        ({"a": {"type": "string", "unique": 1}}, [], "/fields/a/unique", "boolean"),
        ({"a": TEXT}, [["b"]], "/unique/0/0", "is no field of this class"),
        ({"email": TEXT}, [["emial"]], "/unique/0/0", 'did you mean "email"?'),
        ({"a": TEXT}, [["a", "a"]], "/unique/0/1", "must not be there twice"),
        ({"a": TEXT, "b": {"type": "float"}}, [["a", "b"]], "/unique/0/1", "type float"),
        ({"a": TEXT, "b": {**TEXT, "group": "g"}}, [["a", "b"]], "/unique/0", "one cache group"),
        ({"a": TEXT, "b": TEXT}, [["a", "b"], ["b", "a"]], "/unique/1", "is there already"),
        ({"a": {**TEXT, "unique": True}}, [["a"]], "/unique/0", "is there already"),
        ({"a": TEXT}, [[]], "/unique/0", "at least 1"),
        ({"a": TEXT}, [["$where"]], "/unique/0/0", "match pattern"),
        ({"a": TEXT}, "a", "/unique/0", "must be an array"),
        ({"a": TEXT}, [[f"f{i}" for i in range(9)]], "/unique/0", "at most 8"),
        ({"a": TEXT}, [["a"]] * 9, "/unique", "at most 8"),
        ({f"f{i}": {**TEXT, "unique": True} for i in range(9)}, [], "/unique", "at most 8"),
    ],
)
def test_mistakes_are_located(fields: Any, unique: Any, pointer: str, detail: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        class_of(fields, unique)
    details = {location.pointer: location.detail for location in caught.value.locations}
    assert detail in details[AT + pointer], details


def test_a_schema_is_parsed_as_it_was_rendered() -> None:
    fields = {"a": {**TEXT, "unique": True}, "b": TEXT, "c": TEXT}
    schema = parse_schema("shop", document(fields, [["c", "b"]]))
    assert schema.classes["users"].unique_constraints == (("a",), ("c", "b"))
    assert parse_schema("shop", schema_document(schema)) == schema


def test_a_difference_names_the_constraint() -> None:
    before = schema_document(parse_schema("shop", document({"a": TEXT, "b": TEXT})))
    fields = {"a": {**TEXT, "unique": True}, "b": TEXT}
    after = schema_document(parse_schema("shop", document(fields, [["a", "b"]])))
    actual = [
        (difference.kind, difference.node, difference.member, difference.after)
        for difference in differences(before, after)
    ]
    assert actual == [
        ("changed", "users", "unique", [["a", "b"]]),
        ("added", "users.a", "unique", True),
    ]


def test_only_set_and_unset_apply_to_unique_fields() -> None:
    fields = {"n": {"type": "integer", "unique": True}, "m": {"type": "integer"}}
    schema = class_of(fields, [["m", "n"]])
    codec = Codec(schema)
    for name in fields:
        for operator, argument in (("inc", 1), ("max", 1), ("bit_or", 1)):
            with pytest.raises(Invalid) as refused:
                parse_update(schema, codec, {name: {operator: argument}}, "/body")
            assert [location.pointer for location in refused.value.locations] == [
                f"/body/{name}/{operator}"
            ]
    assert parse_update(schema, codec, {"n": {"set": 1}, "m": {"unset": True}}).values == {"n": 1}


FIELDS = {type_.value: Field(type_.value, type_) for type_ in FieldType}


def claim(type_: FieldType, value: Value) -> str | None:
    [claimed] = claims_of([(type_.value,)], FIELDS, {type_.value: value}).values()
    return claimed


@pytest.mark.parametrize(
    ("type_", "one", "equal", "other"),
    [
        (FieldType.DECIMAL, Decimal("1.5"), Decimal("1.500"), Decimal("1.51")),
        (FieldType.DECIMAL, Decimal(0), Decimal("-0.0"), Decimal("1E-6143")),
        (FieldType.INTEGER, 2**62, 2**62, 2**62 + 1),
        (FieldType.STRING, "a", "a", "a "),
        (FieldType.REFERENCE, "a", "a", "A"),
        (FieldType.BOOLEAN, False, False, True),
        (FieldType.BINARY, b"", b"", b"\0"),
        (
            FieldType.TIMESTAMP,
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
    ],
)
def test_equal_values_make_one_claim(
    type_: FieldType, one: Value, equal: Value, other: Value
) -> None:
    assert claim(type_, one) == claim(type_, equal) != claim(type_, other)


def test_without_all_values_there_is_no_claim() -> None:
    constraints = [("string",), ("string", "integer")]
    names = [constraint_name(fields) for fields in constraints]
    assert claims_of(constraints, FIELDS, {}) == dict.fromkeys(names)
    partial = claims_of(constraints, FIELDS, {"string": "a", "integer": None})
    assert [name for name, value in partial.items() if value] == ["string"]
    assert claims_of(constraints, FIELDS, {}, ("binary",)) == {}
    assert claims_of(constraints, FIELDS, {"integer": 1}, ("integer",)) == {names[1]: None}
    assert constraint_fields(names[1]) == ["string", "integer"]
