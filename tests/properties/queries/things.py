"""A class with a field of every type, and strategies for valid and hostile values."""

from __future__ import annotations

import string
from datetime import UTC
from decimal import Decimal
from typing import Any

import orjson
from hypothesis import strategies as st

from mediator.schema.parse import parse_schema
from mediator.schema.scalars import canonical_decimal
from mediator.schema.tree import ClassSchema
from mediator.schema.types import SCALARS, FieldType
from mediator.schema.values import Codec

CONTAINERS = (FieldType.LIST, FieldType.SET, FieldType.MAP)
ITEMS = SCALARS - {FieldType.REFERENCE}


def class_of_every_type() -> ClassSchema:
    """Return a class with a field of every type and of every type of items."""
    fields: dict[str, Any] = {}
    for type_ in sorted({*FieldType} - {*CONTAINERS}):
        fields[type_.value] = {"type": type_.value}
        for container in CONTAINERS:
            if type_ in ITEMS or (type_ is FieldType.DOCUMENT and container is not FieldType.SET):
                name = f"{container.value}_{type_.value}"
                fields[name] = {"type": container.value, "items": type_.value}
    fields["reference"]["to"] = "things"
    document = {"classes": {"things": {"fields": fields}}}
    return parse_schema("test", document).classes["things"]


THINGS = class_of_every_type()
CODEC = Codec(THINGS)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
ids = st.text(string.ascii_letters + "é-_.:", min_size=3, max_size=20)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
decimals = st.builds(
    lambda sign, digits, exponent: canonical_decimal(Decimal((sign, digits, exponent))),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
    st.integers(-6143, 6111),
)
times = st.datetimes(timezones=st.just(UTC))
documents = st.dictionaries(
    names,
    st.recursive(
        st.none() | st.booleans() | integers | floats.filter(lambda n: not n.is_integer()) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
SCALAR_VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.STRING: texts,
    FieldType.INTEGER: integers,
    FieldType.FLOAT: floats,
    FieldType.DECIMAL: decimals,
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: times,
    FieldType.BINARY: st.binary(max_size=20),
    FieldType.REFERENCE: ids,
    FieldType.DOCUMENT: documents,
}
hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=8)
    | st.sampled_from(["2024-02-30T00:00:00Z", "1E+99999", "====", "\0", "\ud800", ".", "-0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Return Python forms of a field of `THINGS`."""
    field = THINGS.fields[name]
    if field.items is None:
        return SCALAR_VALUES[field.type]
    items = SCALAR_VALUES[field.items]
    if field.type is FieldType.MAP:
        return st.dictionaries(names, items, max_size=4)
    lists = st.lists(items, max_size=4)
    return lists.map(lambda v: sorted(set(v))) if field.type is FieldType.SET else lists


def text_of(body: Any) -> bytes:
    """Return canonical JSON text; numbers with the same text are equal."""
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
