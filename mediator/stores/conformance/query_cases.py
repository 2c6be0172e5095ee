"""Filters to search by, at the edges of every type, and records that they hold and fail for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final

from mediator.model.filters import (
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
    Path,
)
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.types import SCALARS, FieldType, Value, Values
from mediator.stores.conformance.ordering import neighbours
from mediator.stores.conformance.samples import HOSTILE_TEXTS

__all__ = [
    "DOCUMENTS",
    "DOCUMENT_PATHS",
    "DOCUMENT_VALUES",
    "LOGICAL",
    "MAPS",
    "PARTS",
    "PATTERNS",
    "TEXTS",
    "WHOLE_FLOATS",
    "comparisons",
    "constants",
    "equalities",
    "logical_rows",
    "rows_of",
    "sample",
    "some",
]

_CONSTANTS = 5

TEXTS: Final = (
    *("", "a", "A", "ab", "aB", "abc", "b", "ba", "a b", "a\nb", "a\tb", "aa", "aaa"),
    *("%", "_", "\\", "a%b", "a_b", "a\\b", "axb", "a\\%b", "50%", "%50", "\\%", "\\_", "\\\\"),
    *(".*", "a.b", "a.*b", "^a", "a$", "(a)", "[a]", "a|b", "a+", "a?", "{1}", "*", "?", "[", "a["),
    *(
        "Straße",
        "STRASSE",
        "straße",
        "é",
        "e\u0301",
        "É",
        "日本語",
        "İ",
        "\u0131",
        "ﬁ",
        "\ufb01nal",
    ),
    *("\U0001f600", "\U0001f600a", "a\U0001f600", "\uffff", "\U00010000", "\U0010ffff"),
    *("\ud7ff", "\x01", "\x7f", "\u2028", " a", "a ", "null", "1", "1.0", "true"),
    *HOSTILE_TEXTS[:16],
)
"""Texts of which some meaning, length or case may be mistaken."""

PATTERNS: Final = (
    *("", "%", "%%", "_", "__", "_%", "%_", "a", "A", "a%", "%a", "%a%", "a%b", "a_b", "%b%"),
    *("a\\%b", "a\\_b", "a\\\\b", "a\\b", "\\a", "%\\%", "\\%%", "\\\\", "\\\\%", "%\\\\%", "\\_"),
    *(".*", "a.b", "a.%", "^%", "%$", "[a]", "(%", "a|b", "a+", "*", "?", "[%", "%{%", "a[%"),
    *("é", "e_", "%\u0301", "É", "Stra_e", "Stra%", "stra%", "日_語", "\U0001f600", "\U0001f600%"),
    *("_a", "\U0010ffff%", "\ud7ff%", "\uffff%", "%\n%", "a\n%", "'", "%'%", '"%', "$%", "a%%b"),
)
"""Patterns of `like`, with what means something to other pattern languages."""

PARTS: Final = (
    *("", "a", "A", "ab", "%", "_", "\\", ".*", "[", "é", "e", "\u0301", "\U0001f600", "'"),
)
"""Parts of texts."""


_LONG: Final[Mapping[FieldType, Sequence[Any]]] = {
    FieldType.STRING: ["q" * 600 + end for end in ("b", "a", "")],
    FieldType.BINARY: [b"q" * 600 + end for end in (b"b", b"a", b"")],
}
"""Values that differ beyond what an index may hold of them."""


def sample(type_: FieldType) -> list[Any]:
    """Return values of a type, close together, far apart, and long ones alike at first."""
    return [*neighbours(type_), *_LONG.get(type_, ())]


def constants(type_: FieldType) -> list[Any]:
    """Return a few values of a type to compare with, its ends among them."""
    values = neighbours(type_)
    step = max(1, len(values) // _CONSTANTS)
    return list(dict.fromkeys([*values[::step], values[-1], *_LONG.get(type_, ())[1:2]]))


def some(values: Sequence[Value]) -> list[Value]:
    """Return a few of many values."""
    return list(values[:: max(1, len(values) // _CONSTANTS)])


def rows_of(values: Sequence[Value], *names: str) -> list[Values]:
    """Make records with each of some values under several names, with nulls, and without."""
    rows: list[Values] = [dict.fromkeys(names, value) for value in values]
    return [*rows, *([dict.fromkeys(names)] * 2), {}, {}]


def equalities(path: Path, values: Sequence[Value]) -> Iterator[Filter]:
    """Yield filters about values, nulls and presence."""
    for value in (*values, None):
        yield Compare(Comparison.EQ, path, value)
        yield Compare(Comparison.NE, path, value)
    for chosen in ((), tuple(values[:3]), (None,), (None, *values[1:3])):
        yield In(path, chosen)
        yield Not(In(path, chosen))
    yield Exists(path)
    yield Not(Exists(path))


def comparisons(path: Path, values: Sequence[Value]) -> Iterator[Filter]:
    """Yield filters that compare with values of one type."""
    yield from equalities(path, values)
    comparing = (Comparison.LT, Comparison.LE, Comparison.GT, Comparison.GE)
    for comparison, value in product(comparing, values):
        yield Compare(comparison, path, value)
    yield Not(Compare(Comparison.LT, path, values[0]))
    for low, high in pairwise(values):
        yield Between(path, low, high)
        yield Not(Between(path, high, low))


_N, _S, _B = ("n",), ("s",), ("b",)
_ONE = Compare(Comparison.EQ, _N, 1)
_UP = Compare(Comparison.GT, _N, 1)
_X = Compare(Comparison.EQ, _S, "x")
_TRUE = Compare(Comparison.EQ, _B, True)
_NONE = Compare(Comparison.EQ, _S, None)

LOGICAL: Final[Sequence[Filter]] = (
    And(()),
    Or(()),
    Not(And(())),
    Not(Or(())),
    Not(_ONE),
    Not(Not(_ONE)),
    Not(Not(Not(_UP))),
    Not(And((_ONE, _X))),
    Not(Or((_ONE, _X))),
    And((_ONE, _X, _TRUE)),
    And((Not(_ONE), Not(_X))),
    Or((_ONE, _X)),
    Or((Not(_UP), And((_X, Not(_TRUE))))),
    And((Or((_ONE, _UP)), Or((_X, _NONE)))),
    Not(And((Not(_NONE), Exists(_S)))),
    And((Exists(_S), Not(_NONE), Not(Compare(Comparison.NE, _N, 2)))),
    Or((Not(Exists(_N)), Not(Exists(_S)), _TRUE)),
    Or((And(()), _ONE)),
    And((Or(()), _ONE)),
    And((_ONE, _ONE, And((_X, And((_TRUE,)))))),
    Not(Or((Like(_S, "x%"), In(_N, (None, 1))))),
    And((Like(_S, "%"), Contains(_S, ""))),
    Or((Contains(_S, "y"), Not(Like(_S, "_")))),
    And((_UP, Compare(Comparison.LT, _N, 1))),
)
"""What three-valued logic, or a careless split, would answer otherwise."""


def logical_rows() -> list[Values]:
    """Make records with every combination of values, nulls and nothing in three fields."""
    choices: Mapping[str, tuple[Any, ...]] = {"n": (1, 2), "s": ("x", "y"), "b": (False, True)}
    rows: list[Values] = [{}]
    for name, values in choices.items():
        rows = [row | part for row in rows for part in ({}, *({name: v} for v in (None, *values)))]
    return rows


DOCUMENT_VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 2**53, 2**53 + 1, 2**60, INTEGER_MAX, INTEGER_MIN, 0.1, 1.5, -2.5, 1e-300, 1e300),
    *("", "a", "b", "1", "true", "null", "é", "\U0001f600", "%", True, False),
)
"""Values within documents that are compared with."""

WHOLE_FLOATS: Final = (1.0, -1.0, 2.0**60, -(2.0**63))
"""Numbers that a document holds as integers."""

_MEMBERS: tuple[Any, ...] = (
    *DOCUMENT_VALUES,
    *(None, {}, [], [1], ["a"], [None], [[1]], {"b": 1}, {"b": None}, {"b": "a"}, [{"b": 1}]),
    *(["a", 1, True, None, 1.5], {"b": {"c": 1}}, {"b": ["a"]}, ["1", "true"], {"0": "a"}),
)

_KEYS = ("$inc", "é", "0", " ", "'", '"', "{a,b}", "A", "a[0]")

_WHOLE: list[dict[str, Any]] = [
    *({"a": member} for member in _MEMBERS),
    *({"a.b": member} for member in (1, "a", None)),
    *({key: 1} for key in _KEYS),
    {},
]

DOCUMENTS: Final[Sequence[Values]] = (
    *[Values(value=document) for document in _WHOLE],
    {"value": None},
    {},
)
"""Records with a document, whose member `a` is everything that JSON has."""

DOCUMENT_PATHS: Final[Sequence[Path]] = (
    *(("value", *keys) for keys in (("a",), ("a", "b"), ("a", "0"), ("a.b",), ("a", "b", "c"))),
    *(("value", key) for key in (*_KEYS, "none")),
)
"""Paths into them."""

MAPS: Final[Mapping[FieldType, Sequence[Value]]] = {
    type_: constants(type_) for type_ in sorted(SCALARS)
}
"""Items of maps."""
