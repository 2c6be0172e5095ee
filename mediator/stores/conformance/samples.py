"""Fields for scratch classes, edge values of every type, and cases of operators on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

from mediator.model.operators import WITHOUT_ARGUMENT, Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value, Values

__all__ = [
    "EDGES",
    "HOSTILE_TEXTS",
    "LONG_TEXTS",
    "Case",
    "cases",
    "collection",
    "counter",
    "edges_of",
    "plain",
    "short_edges",
    "sortable",
    "text",
]

HOSTILE_TEXTS = (
    # SQL
    *("'", '"', "\\", "\\'; DROP TABLE portolan; --", "'; DROP TABLE portolan; --"),
    '"; DROP TABLE portolan; --',
    # MongoDB, templates and statements with parameters
    *("$where", "$inc", "{}", "{tag}", '{"$gt": ""}', "%", "%s %(id)s %%", ":id", "$1"),
    # Redis and its Lua
    *("]]", "]==] .. redis.call('FLUSHALL') .. [==[", "*", "a b"),
    # patterns, values of other types, separators, names with a meaning
    *(".*", "^", "null", "None", "true", "0", "-1", "1e3"),
    *("a.b", "a:b", "a#b", "a|b", "a,b", "_id", "__proto__", "%2F%00"),
)
"""Texts with a meaning in some query language, template or key scheme."""

_NOISE = "".join(chr(0x10000 + n * n * n % 65_521) for n in range(2_000))
LONG_TEXTS = tuple(_NOISE + end for end in ("", "a", "b"))
"""Incompressible texts that differ only beyond the length of an index entry."""

_MAX_LENGTH = 1_500

_TEXTS: tuple[Value, ...] = (
    "",
    "a",
    " led and trailed ",
    "\t\r\n\x01\x1f\x7f",
    "\ufeff\u2028\u200b",
    "Straße STRASSE strasse",
    "\u00e9",
    "e\u0301",
    "\U0001f600\U00010000\U0010fffd",
    "\u05e9\u05dc\u05d5\u05dd \u202egnirts",
    "x" * 100_000,
    *HOSTILE_TEXTS,
)

_DEEP: dict[str, Any] = {"leaf": 1}
for _ in range(15):
    _DEEP = {"deeper": [_DEEP]}

EDGES: Mapping[FieldType, tuple[Value, ...]] = {
    FieldType.STRING: _TEXTS,
    FieldType.REFERENCE: ("a", "\U0001f600", "r" * 512, *HOSTILE_TEXTS),
    FieldType.INTEGER: (
        *(0, 1, -1, 2**31, -(2**31) - 1),
        *(2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1),
        *(INTEGER_MIN, INTEGER_MIN + 1, INTEGER_MAX - 1, INTEGER_MAX),
    ),
    FieldType.FLOAT: (
        *(0.0, 1.0, -1.0, 0.1, 1 / 3, 123456789.123456789),
        *(5e-324, -5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308),
        *(1e22, 2.0**53, 2.0**63, 1.7976931348623157e308, -1.7976931348623157e308),
    ),
    FieldType.DECIMAL: tuple(
        Decimal(number)
        for number in (
            *("0", "1", "-1", "0.1", "1.10", "100", "1E+3", "9007199254740993"),
            *("9" * 34, "-" + "9" * 34, "1234567890123456789.012345678901234"),
            *("0." + "0" * 33 + "1", "1E-30", "1E+33", "-1E+40", "1E-6143"),
            *("9." + "9" * 33 + "E+6144", "-9." + "9" * 33 + "E+6144"),
        )
    ),
    FieldType.BOOLEAN: (False, True),
    FieldType.TIMESTAMP: (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, microsecond=1, tzinfo=UTC),
        datetime(1582, 10, 10, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2000, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    FieldType.BINARY: (b"", b"\x00", b"a\x00b", bytes(range(256)), b"\xff\xfe" * 100_000),
    FieldType.DOCUMENT: (
        {},
        {"a": {}, "b": [], "c": [[], {}], "d": ""},
        {"null": None, "true": True, "one": 1, "float": 1.5, "text": "1"},
        {"a.b": {"c.d": 1}, "$inc": {"n": 1}, " ": 1, "$": 2, ".": 3},
        {"_id": 1, "__proto__": {}, "id": "x", "t:": 1, "é": 1, "\U0001f600": 2},
        {"least": INTEGER_MIN, "most": INTEGER_MAX, "odd": 2**53 + 1},
        {"tiny": 5e-324, "huge": 1.7976931348623157e308, "third": 1 / 3, "big": 1e300},
        {text: text for text in HOSTILE_TEXTS},
        {"mixed": [1, 1.5, "x", None, True, {"y": [None]}]},
        _DEEP,
    ),
}
"""Edge values of the types without items, in the forms that the schema decodes."""


def edges_of(type_: FieldType, items: FieldType) -> tuple[Value, ...]:
    """Return edge values of a collection type whose items are of the type `items`."""
    members = short_edges(items)
    if type_ is FieldType.LIST:
        return ([], members[:1], members, [*members, *reversed(members)])
    if type_ is FieldType.SET:
        distinct = sorted(dict.fromkeys(members), key=sortable)
        return ([], distinct[:1], distinct)
    keys = (" ", "k" * 512, "a.b", "$x", "é", "\U0001f600", *HOSTILE_TEXTS)
    return ({}, {key: members[i % len(members)] for i, key in enumerate(keys)})


def short_edges(type_: FieldType) -> list[Any]:
    """Return the edge values of a type that are short enough for items or indexes."""
    return [value for value in EDGES[type_] if len(repr(value)) < _MAX_LENGTH]


def plain(type_: FieldType, name: str = "value", **rules: Any) -> Field:
    """Return a field of a type; collections have integers unless `items` is given."""
    if type_ is FieldType.REFERENCE:
        return Field(name, type_, **{"to": "somewhere", **rules})
    if type_ in SCALARS or type_ is FieldType.DOCUMENT:
        return Field(name, type_, **rules)
    return Field(name, type_, **{"items": FieldType.INTEGER, **rules})


def counter(name: str = "n", **rules: Any) -> Field:
    return Field(name, FieldType.INTEGER, **rules)


def text(name: str = "s", **rules: Any) -> Field:
    return Field(name, FieldType.STRING, **rules)


def collection(type_: FieldType, items: FieldType, name: str = "value", **rules: Any) -> Field:
    return Field(name, type_, items=items, **rules)


def sortable(value: Any) -> Any:
    """Return the sort key of a value: texts sort by their bytes."""
    return value.encode() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one field with a value, null or missing before."""

    field: Field
    before: Value | MissingType
    call: OperatorCall

    @property
    def row(self) -> Values:
        """The record's values before."""
        return {} if isinstance(self.before, MissingType) else {self.field.name: self.before}


_BEFORE: Mapping[FieldType, Sequence[Value]] = {
    FieldType.INTEGER: (0, 1, -7, 2**31, 2**53 + 1, INTEGER_MAX, INTEGER_MIN),
    FieldType.FLOAT: (0.0, 0.1, -1.5, 2.0**53, 5e-324, 1e-300, 1e308, 1.7976931348623157e308),
    FieldType.DECIMAL: tuple(
        map(Decimal, ("0", "0.1", "-1.10", "1E-33", "9" * 34, "-" + "9" * 34, "1" + "0" * 33))
    ),
    FieldType.TIMESTAMP: EDGES[FieldType.TIMESTAMP],
}

_ARGUMENTS: Mapping[FieldType, Sequence[Value]] = {
    FieldType.INTEGER: (0, 1, -1, 3, 2**32, INTEGER_MAX, INTEGER_MIN),
    FieldType.FLOAT: (0.0, 0.2, -1.5, 3.0, 1e-300, 1e308),
    FieldType.DECIMAL: tuple(map(Decimal, ("0", "0.2", "-1", "3", "1E-33", "9" * 34))),
    FieldType.TIMESTAMP: (
        datetime(1, 1, 1, microsecond=2, tzinfo=UTC),
        datetime(2000, 2, 29, 12, 30, 15, 123_457, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
    ),
}

_BOUNDS: Mapping[FieldType, Sequence[tuple[Value, Value]]] = {
    FieldType.INTEGER: ((-6, 2**32), (1, None), (None, 0), (2**53 + 1, 2**62)),
    FieldType.FLOAT: ((-1.5, 2.0**53), (0.1, None), (None, 0.0)),
    FieldType.DECIMAL: ((Decimal("-1.1"), Decimal("1E+30")), (Decimal(1), None)),
}
"""Minimum and maximum of fields: some exact as doubles, some not."""

_MEMBERS = 4

_ABSENT: tuple[MissingType | None, ...] = (MISSING, None)


def cases(operator: Operator, type_: FieldType) -> Iterator[Case]:
    for field in _fields(type_):
        befores = [*_ABSENT, *_befores(field)]
        for before, argument in product(befores, _arguments(operator, field)):
            yield Case(field, before, OperatorCall(field.name, operator, argument))


def _fields(type_: FieldType) -> Iterator[Field]:
    if type_ in SCALARS:
        yield plain(type_)
        for i, (low, high) in enumerate(_BOUNDS.get(type_, ())):
            yield plain(type_, f"bounded_{i}", minimum=low, maximum=high)
        return
    for items in sorted(SCALARS):
        yield collection(type_, items, name=f"of_{items}")
    yield collection(type_, FieldType.INTEGER, name="at_most_two", max_length=2)
    if type_ is FieldType.LIST:
        yield collection(type_, FieldType.DOCUMENT, name="of_document")


def _befores(field: Field) -> Sequence[Value]:
    """Return values of a field; some exceed its length bound, as if it had been set later."""
    if field.items is None:
        return _BEFORE[field.type]
    first, second, *_ = _members(field)
    if field.type is FieldType.LIST:
        return ([], [first], [second, first], [first, second, first])
    if field.type is FieldType.SET:
        full = edges_of(FieldType.SET, field.items)[-1]
        assert isinstance(full, list)
        return ([], [first], full[: field.max_length], full)
    mapping = {"a": first, "$x": second}
    return ({}, {"a.b": first}, mapping, mapping | {"a.b": second})


def _arguments(operator: Operator, field: Field) -> Sequence[Value]:
    if operator in WITHOUT_ARGUMENT:
        return (True,)
    if field.items is None:
        return _ARGUMENTS[field.type]
    members = _members(field)
    if field.type is not FieldType.MAP:
        return members
    if operator is Operator.REMOVE:
        return ("a.b", "a", "$x", "absent")
    hostile = dict.fromkeys(HOSTILE_TEXTS, members[0])
    return ({}, {"a.b": members[1]}, {"k": members[0], "é": members[1]}, hostile)


def _members(field: Field) -> list[Any]:
    """Return some items for a collection: the first two and last two edge values, all different."""
    assert field.items is not None
    items = short_edges(field.items)
    return items if len(items) < _MEMBERS else [*items[:2], *items[-2:]]
