"""Filters and records for searches, with edge values of every type, and an oracle in Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise, product
from typing import Any, Final

from mediator.model.evaluate import compile_filter, lookup_of
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
from mediator.model.order import position_of, sort_key
from mediator.model.query import OrderBy, Position
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Value, Values
from mediator.stores.conformance.expect import ConformanceFailure, NotOffered, require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, short_edges
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Pushdown, Queryable, Record, SearchRequest

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
    "SearchedClass",
    "comparisons",
    "constants",
    "create_searched_class",
    "equalities",
    "logical_rows",
    "matching",
    "read_searched_class",
    "rows_of",
    "sample",
    "subset_of",
]

_CONSTANTS = 5
_MAX_RECORDS = 1_000

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
"""Texts whose meaning, length or case is easily mistaken."""

PATTERNS: Final = (
    *("", "%", "%%", "_", "__", "_%", "%_", "a", "A", "a%", "%a", "%a%", "a%b", "a_b", "%b%"),
    *("a\\%b", "a\\_b", "a\\\\b", "a\\b", "\\a", "%\\%", "\\%%", "\\\\", "\\\\%", "%\\\\%", "\\_"),
    *(".*", "a.b", "a.%", "^%", "%$", "[a]", "(%", "a|b", "a+", "*", "?", "[%", "%{%", "a[%"),
    *("é", "e_", "%\u0301", "É", "Stra_e", "Stra%", "stra%", "日_語", "\U0001f600", "\U0001f600%"),
    *("_a", "\U0010ffff%", "\ud7ff%", "\uffff%", "%\n%", "a\n%", "'", "%'%", '"%', "$%", "a%%b"),
)
"""Patterns of `like`, including syntax of other pattern languages."""

PARTS: Final = (
    *("", "a", "A", "ab", "%", "_", "\\", ".*", "[", "é", "e", "\u0301", "\U0001f600", "'"),
)
"""Substrings of texts."""


_LONG: Final[Mapping[FieldType, Sequence[Any]]] = {
    FieldType.STRING: ["q" * 600 + end for end in ("b", "a", "")],
    FieldType.BINARY: [b"q" * 600 + end for end in (b"b", b"a", b"")],
}
"""Values that differ only beyond the length of an index entry."""


def _neighbours(type_: FieldType) -> list[Value]:
    """Return the edge values of a type, and values as close together as the type permits."""
    edges = short_edges(type_)
    if type_ is FieldType.INTEGER:
        return [*edges, *(2**53 + i for i in range(-3, 4)), INTEGER_MAX - 2]
    if type_ is FieldType.FLOAT:
        return [*edges, *(math.nextafter(v, 0.0) for v in (0.1, 1.0, 2.0**53, 1e308))]
    if type_ is FieldType.DECIMAL:
        return [
            *edges,
            Decimal("0.1" + "0" * 31 + "1"),
            Decimal(2**53 + 2),
            Decimal("9" * 33 + "8"),
        ]
    if type_ is FieldType.TIMESTAMP:
        return [*edges, *(value + timedelta(microseconds=1) for value in edges[:-1])]
    if type_ is FieldType.STRING:
        stem = "p" * 500
        return [*edges, stem, stem + "\x7f", stem + "\u0080", stem + "a", stem + "\U00010000"]
    return edges


def sample(type_: FieldType) -> list[Any]:
    """Return values of a type: close together, far apart, and long with a common prefix."""
    return [*_neighbours(type_), *_LONG.get(type_, ())]


def constants(type_: FieldType) -> list[Any]:
    """Return a few values of a type to compare with, including its extremes."""
    values = _neighbours(type_)
    step = max(1, len(values) // _CONSTANTS)
    return list(dict.fromkeys([*values[::step], values[-1], *_LONG.get(type_, ())[1:2]]))


def subset_of(values: Sequence[Value]) -> list[Value]:
    return list(values[:: max(1, len(values) // _CONSTANTS)])


def rows_of(values: Sequence[Value], *names: str) -> list[Values]:
    """Return records with each value under several names, and records with nulls and without."""
    rows: list[Values] = [dict.fromkeys(names, value) for value in values]
    return [*rows, *([dict.fromkeys(names)] * 2), {}, {}]


def equalities(path: Path, values: Sequence[Value]) -> Iterator[Filter]:
    """Yield filters on values, nulls and presence."""
    for value in (*values, None):
        yield Compare(Comparison.EQ, path, value)
        yield Compare(Comparison.NE, path, value)
    for members in ((), tuple(values[:3]), (None,), (None, *values[1:3])):
        yield In(path, members)
        yield Not(In(path, members))
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
"""Filters that three-valued logic, or a careless split, would evaluate wrongly."""


def logical_rows() -> list[Values]:
    """Return records with every combination of values, null and missing in three fields."""
    choices: Mapping[str, tuple[Any, ...]] = {"n": (1, 2), "s": ("x", "y"), "b": (False, True)}
    rows: list[Values] = [{}]
    for name, values in choices.items():
        rows = [
            row | columns for row in rows for columns in ({}, *({name: v} for v in (None, *values)))
        ]
    return rows


DOCUMENT_VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 2**53, 2**53 + 1, 2**60, INTEGER_MAX, INTEGER_MIN, 0.1, 1.5, -2.5, 1e-300, 1e300),
    *("", "a", "b", "1", "true", "null", "é", "\U0001f600", "%", True, False),
)
"""Values to compare with within documents."""

WHOLE_FLOATS: Final = (1.0, -1.0, 2.0**60, -(2.0**63))
"""Numbers that documents store as integers."""

_MEMBERS: tuple[Any, ...] = (
    *DOCUMENT_VALUES,
    *(None, {}, [], [1], ["a"], [None], [[1]], {"b": 1}, {"b": None}, {"b": "a"}, [{"b": 1}]),
    *(["a", 1, True, None, 1.5], {"b": {"c": 1}}, {"b": ["a"]}, ["1", "true"], {"0": "a"}),
)

_KEYS = ("$inc", "é", "0", " ", "'", '"', "{a,b}", "A", "a[0]")

_OBJECTS: list[dict[str, Any]] = [
    *({"a": member} for member in _MEMBERS),
    *({"a.b": member} for member in (1, "a", None)),
    *({key: 1} for key in _KEYS),
    {},
]

DOCUMENTS: Final[Sequence[Values]] = (
    *[Values(value=document) for document in _OBJECTS],
    {"value": None},
    {},
)
"""Records with a document whose member `a` has every kind of JSON value."""

DOCUMENT_PATHS: Final[Sequence[Path]] = (
    *(("value", *keys) for keys in (("a",), ("a", "b"), ("a", "0"), ("a.b",), ("a", "b", "c"))),
    *(("value", key) for key in (*_KEYS, "none")),
)
"""Paths into them."""

MAPS: Final[Mapping[FieldType, Sequence[Value]]] = {
    type_: constants(type_) for type_ in sorted(SCALARS)
}
"""Items of maps."""


def matching(filter_: Filter | None, rows: Mapping[str, Values]) -> list[str]:
    """Return the ids of the records that match a filter; None: all."""
    if filter_ is None:
        return list(rows)
    holds = compile_filter(filter_)
    return [id_ for id_, values in rows.items() if holds(lookup_of(id_, values))]


@dataclass(frozen=True, slots=True)
class SearchedClass:
    """A class with records, of which every search is compared with the oracle."""

    subject: ScratchClass
    store: Queryable
    rows: Mapping[str, Values]

    async def check(
        self, filter_: Filter | None, order: tuple[OrderBy, ...] = (), *, limit: int = _MAX_RECORDS
    ) -> None:
        """Require exactly the pushed condition's matches, and their order if the plan has it."""
        plan = self.plan(filter_, order)
        records = await self.pages(plan, order if plan.ordered else (), limit)
        ids = [record.id for record in records]
        _same_ids(sorted(ids), sorted(matching(plan.pushed, self.rows)), "found for", plan.pushed)
        for record in records:
            same(record.values, self.rows[record.id], f"values of {record.id!r}")
        if plan.ordered:
            same(ids, self.in_order(ids, order), f"the order {order}")

    async def check_all(self, filters: Iterable[Filter]) -> None:
        for filter_ in filters:
            await self.check(filter_)

    async def check_positions(self, order: tuple[OrderBy, ...], filter_: Filter | None) -> None:
        """Require that a search can begin beyond any record, if the store has the order."""
        plan = self.plan(filter_, order)
        if not plan.ordered:
            return
        expected = self.in_order(matching(plan.pushed, self.rows), order)
        for at in range(0, len(expected), 5):
            after = self.position(expected[at], order)
            find = SearchRequest(self.subject.fragment, plan.pushed, order, 3, after)
            page = await self.store.find(find)
            ids = [record.id for record in page.records]
            same(ids, expected[at + 1 : at + 4], f"beyond {expected[at]!r} in {order}")

    async def pages(
        self,
        plan: Pushdown,
        order: tuple[OrderBy, ...],
        limit: int,
        fields: tuple[str, ...] | None = None,
        after: Position | None = None,
    ) -> list[Record]:
        """Return the records that a store finds, page after page, beyond an optional position."""
        records: list[Record] = []
        find = SearchRequest(self.subject.fragment, plan.pushed, order, limit, after, fields=fields)
        for _ in range(_MAX_RECORDS):
            page = await self.store.find(find)
            require(len(page.records) <= limit, f"a page of {limit} has {len(page.records)}")
            records += page.records
            if page.resume is None:
                return records
            find = replace(find, resume=page.resume)
        raise ConformanceFailure("a search does not end")

    def in_order(self, ids: Sequence[str], order: tuple[OrderBy, ...]) -> list[str]:
        """Sort ids by the order of their records."""
        key = sort_key(order)
        return sorted(ids, key=lambda id_: key(lookup_of(id_, self.rows[id_]), id_))

    def position(self, id_: str, order: tuple[OrderBy, ...]) -> Position:
        """Return the position of a record in an order."""
        return position_of(order, lookup_of(id_, self.rows[id_]), id_)

    def plan(self, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Pushdown:
        """Return the store's plan, whose two conditions must together equal the filter."""
        plan = self.store.pushdown(self.subject.fragment, filter_, order)
        pushed = {id_: self.rows[id_] for id_ in matching(plan.pushed, self.rows)}
        ids = matching(plan.residual, pushed)
        _same_ids(ids, matching(filter_, self.rows), "both parts of the split of", filter_)
        return plan


def _same_ids(actual: list[str], expected: list[str], label: str, filter_: Filter | None) -> None:
    """Require the same ids; a filter is formatted only on failure, as that is slow."""
    if actual != expected:
        same(actual, expected, f"{label} {filter_}")


async def create_searched_class(
    scratch: Scratch, fields: Sequence[Field], rows: Sequence[Values], **options: Any
) -> SearchedClass:
    """Create a class with records to search, and delete some further records."""
    if not isinstance(scratch.store, Queryable):
        raise NotOffered("the store does not search by filters")
    subject = await scratch.subject(*fields, **options)
    rows_by_id: dict[str, Any] = {_id(i, len(rows)): row for i, row in enumerate(rows)}
    deleted = {f"gone-{id_}": row for id_, row in list(rows_by_id.items())[:3]}
    writes = [subject.creation(id_, row) for id_, row in (rows_by_id | deleted).items()]
    await subject.apply_all(writes, "of a record to be found")
    await subject.apply_all(
        [subject.deletion(id_) for id_ in deleted], "of a record not to be found"
    )
    return SearchedClass(subject, scratch.store, rows_by_id)


async def read_searched_class(subject: ScratchClass) -> SearchedClass:
    """Return a class with its current records, to be searched."""
    if not isinstance(subject.store, Queryable):
        raise NotOffered("the store does not search by filters")
    records = await subject.store.scan(subject.fragment, None, _MAX_RECORDS)
    return SearchedClass(
        subject, subject.store, {record.id: dict(record.values) for record in records}
    )


def _id(number: int, count: int) -> str:
    """Return an id; the order of ids is neither that of creation nor that of ASCII alone."""
    return f"{'aZé~'[number % 4]}{(number * 31) % max(count, 1):03}-{number}"
