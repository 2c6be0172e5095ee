"""Values that constraints refuse, and located mistakes in constraints."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mediator.base.errors import Invalid, SchemaInvalid
from mediator.model.operators import Operator
from mediator.operations.patch import parse_update
from mediator.query.paths import path_of_field
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import ClassSchema, Generated
from mediator.schema.values import Codec

FIELDS: dict[str, Any] = {
    "stock": {"type": "integer", "minimum": 0, "maximum": 10, "default": 0},
    "price": {"type": "decimal", "minimum": "0.01"},
    "ratio": {"type": "float", "maximum": 1},
    "state": {"type": "string", "enum": ["open", "paid", "sent"], "default": "open"},
    "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$", "min_length": 6, "max_length": 9},
    "raw": {"type": "binary", "min_length": 2},
    "made": {"type": "timestamp", "default": "now"},
    "token": {"type": "string", "default": "uuid", "required": True},
}


def class_of(fields: Any) -> ClassSchema:
    return parse_schema("shop", {"classes": {"products": {"fields": fields}}}).classes["products"]


SCHEMA = class_of(FIELDS)
CODEC = Codec(SCHEMA)


@pytest.mark.parametrize(
    ("field", "good", "bad", "demand"),
    [
        ("stock", 0, -1, "must be at least 0"),
        ("stock", 10, 11, "must be at most 10"),
        ("price", "0.01", "0.009", "must be at least 0.01"),
        ("ratio", 1, 1.01, "must be at most 1.0"),
        ("state", "paid", "lost", "must be one of open, paid, sent"),
        ("sku", "ABC-12", "abc-12", "must match the pattern ^[A-Z]{3}-[0-9]+$"),
        ("sku", "ABC-12", "ABC-1", "must be at least 6 characters long"),
        ("raw", "AAA=", "AA==", "must be at least 2 bytes long"),
    ],
)
def test_a_value_that_violates_a_constraint_is_refused_with_its_location(
    field: str, good: Any, bad: Any, demand: str
) -> None:
    CODEC.decode_object({field: good})
    for decode in (CODEC.decode_object, CODEC.decode_fields):
        with pytest.raises(Invalid) as caught:
            decode({field: bad})
        [location] = caught.value.locations
        assert (location.pointer, location.detail) == (f"/{field}", demand)


def test_constraints_do_not_apply_to_null() -> None:
    assert CODEC.decode_object({"stock": None, "state": None})["stock"] is None


def test_constraints_apply_to_set_values_but_not_to_operands() -> None:
    changes = parse_update(SCHEMA, CODEC, {"stock": {"inc": -3}, "price": {"mul": "-1"}})
    assert [call.operator for call in changes.operators] == [Operator.INC, Operator.MUL]
    with pytest.raises(Invalid, match="/stock/set must be at least 0"):
        parse_update(SCHEMA, CODEC, {"stock": {"set": -3}})


def test_constraints_do_not_apply_to_constants_of_queries() -> None:
    for name, constant in {"stock": -5, "sku": "?", "state": "lost", "raw": ""}.items():
        path_of_field((name,), SCHEMA.fields[name]).decode(constant)


def test_generated_defaults_are_new_for_each_object() -> None:
    before = datetime.now(UTC)
    one, other = CODEC.decode_object({}), CODEC.decode_object({})
    assert UUID(str(one["token"])) != UUID(str(other["token"]))
    assert isinstance(one["made"], datetime)
    assert before <= one["made"] <= datetime.now(UTC)
    assert CODEC.decode_object({"token": "mine"})["token"] == "mine"


def test_a_schema_with_constraints_is_rendered_as_it_was_parsed() -> None:
    document = schema_document(parse_schema("shop", {"classes": {"products": {"fields": FIELDS}}}))
    fields = document["classes"]["products"]["fields"]
    for name, members in FIELDS.items():
        for member, value in members.items():
            rendered = fields[name][member]
            assert (list(rendered) if member == "enum" else rendered) == value, (name, member)
    assert parse_schema("shop", document).classes["products"] == SCHEMA
    assert SCHEMA.fields["made"].default is Generated.NOW
    assert SCHEMA.fields["price"].minimum == Decimal("0.01")


@pytest.mark.parametrize(
    ("field", "location", "detail"),
    [
        ({"type": "string", "minimum": 1}, "/minimum", "has no meaning for type string"),
        ({"type": "timestamp", "maximum": "now"}, "/maximum", "has no meaning"),
        ({"type": "integer", "minimum": 0.5}, "/minimum", "must be"),
        ({"type": "integer", "minimum": None}, "/minimum", "must be a number or a string"),
        ({"type": "integer", "minimum": True}, "/minimum", "must be a number or a string"),
        ({"type": "decimal", "minimum": "x"}, "/minimum", "must be"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "/minimum", "must not be above maximum"),
        ({"type": "integer", "minimum": 1, "default": 0}, "/default", "must be at least 1"),
        ({"type": "integer", "enum": ["1"]}, "/enum", "has no meaning for type integer"),
        ({"type": "string", "enum": []}, "/enum", "must"),
        ({"type": "string", "enum": ["a", "b", "a"]}, "/enum/2", "must not be there twice"),
        ({"type": "string", "enum": ["a\0"]}, "/enum/0", "must not contain NUL"),
        ({"type": "string", "enum": [str(n) for n in range(101)]}, "/enum", "must"),
        ({"type": "string", "enum": ["a"], "default": "b"}, "/default", "must be one of a"),
        ({"type": "string", "pattern": "(", "default": "x"}, "/pattern", "regular expression"),
        ({"type": "string", "pattern": r"(a)\1"}, "/pattern", "regular expression"),
        ({"type": "string", "pattern": "(a{1000}){1000}"}, "/pattern", "regular expression"),
        ({"type": "string", "pattern": "a" * 1001}, "/pattern", "must"),
        ({"type": "list", "items": "string", "min_length": 1}, "/min_length", "has no meaning"),
        ({"type": "string", "min_length": 3, "max_length": 2}, "/min_length", "max_length"),
    ],
)
def test_a_mistake_in_a_constraint_is_located(field: Any, location: str, detail: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        class_of({"f": field})
    [mistake] = caught.value.locations
    assert mistake.pointer == f"/classes/products/fields/f{location}"
    assert detail in mistake.detail


@pytest.mark.parametrize(
    ("field", "member"),
    [
        ({"type": "string", "minimum": 1, "default": "x"}, "minimum"),
        ({"type": "boolean", "maximum": "x", "default": True}, "maximum"),
        ({"type": "integer", "min_length": 1, "default": 1}, "min_length"),
        ({"type": "integer", "pattern": "a", "default": 1}, "pattern"),
        ({"type": "list", "items": "integer", "pattern": "a", "default": [1]}, "pattern"),
        ({"type": "boolean", "enum": ["a"], "default": True}, "enum"),
    ],
)
def test_an_inapplicable_constraint_is_the_only_mistake_with_a_default(
    field: Any, member: str
) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        class_of({"f": field})
    [mistake] = caught.value.locations
    assert mistake.pointer == f"/classes/products/fields/f/{member}"
    assert mistake.detail.startswith("has no meaning")


def test_a_refusal_truncates_a_large_enumeration() -> None:
    members = ["m" * 50 + str(n) for n in range(100)]
    with pytest.raises(Invalid) as caught:
        Codec(class_of({"f": {"type": "string", "enum": members}})).decode_object({"f": "x"})
    [mistake] = caught.value.locations
    assert mistake.detail.startswith(f"must be one of {members[0]}, ")
    assert mistake.detail.endswith("… (100 values)")
    assert len(mistake.detail) < 250


def test_a_pattern_is_matched_in_linear_time() -> None:
    hostile = Codec(class_of({"f": {"type": "string", "pattern": "^(a+)+$"}}))
    with pytest.raises(Invalid):
        hostile.decode_object({"f": "a" * 100_000 + "b"})
