"""Aggregates: a store's results equal those that the mediator would compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

from mediator.model.evaluate import lookup_of
from mediator.model.exact import decimal_of
from mediator.model.filters import (
    ID,
    And,
    Between,
    Compare,
    Comparison,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Path,
)
from mediator.model.query import Aggregate, Computation, Function
from mediator.schema.limits import DECIMAL_DIGITS, INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import Field, MissingType
from mediator.schema.types import FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, identical, require, same, show
from mediator.stores.conformance.query_cases import SearchedClass, create_searched_class, matching
from mediator.stores.conformance.samples import collection, plain, sortable
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Aggregating, Estimating, Store

__all__ = ["THEME"]

THEME = Theme("aggregates")

Key: TypeAlias = tuple[Value | MissingType, ...]

_MAX_GROUPS = 1_000
_WAIT_S = 30.0
_NUMBERS: Final = (FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL)
_OTHER_TYPES: Final = (FieldType.STRING, FieldType.BOOLEAN, FieldType.TIMESTAMP, FieldType.BINARY)

_VALUES: Final[Mapping[FieldType, Sequence[Any]]] = {
    FieldType.INTEGER: (0, 1, -1, 7, 2**53 + 1, INTEGER_MAX, INTEGER_MAX, INTEGER_MIN + 5, None),
    FieldType.FLOAT: (0.0, 0.1, 0.2, 1e300, 1 / 3, 5e-324, 123456.789, 2.0**53, None),
    FieldType.DECIMAL: tuple(
        map(Decimal, ("0", "0.1", "0.2", "1E+20", "-3", "9" * 17, "0.05", "1E-10", "2.5"))
    ),
    FieldType.STRING: ("b", "a", "B", "é", "\U0001f600", "\uffff", "", "a ", None),
    FieldType.BOOLEAN: (True, False, True, None, True, True, False, None, True),
    FieldType.TIMESTAMP: tuple(
        datetime(year, 1, 2, 3, 4, 5, year, tzinfo=UTC)
        for year in (1, 1969, 1970, 2024, 9999, 2024, 1583, 2000, 3)
    ),
    FieldType.BINARY: (b"", b"a", b"\xff", b"a\x00", b"b", b"\x00", b"a", b"\x80", None),
}


def _fields() -> list[Field]:
    scalars = [plain(type_, type_.value, index=True) for type_ in _VALUES]
    groups = [plain(FieldType.STRING, "g"), plain(FieldType.INTEGER, "h", index=True)]
    return [*scalars, *groups, collection(FieldType.LIST, FieldType.STRING, "l")]


def _rows() -> list[Values]:
    strings: list[Values] = [{}, {"g": None}, {"g": "x"}, {"g": "X"}, {"g": "é"}, {"g": "x"}]
    numbers: list[Values] = [{}, {"h": None}, {"h": 1}, {"h": 2}]
    rows = []
    for i, (g, h) in enumerate(product(strings, numbers)):
        values = {
            t.value: edges[i % len(edges)] for t, edges in _VALUES.items() if (i + len(t)) % 5
        }
        rows.append(g | h | values | ({"l": ["a"]} if i % 2 else {}))
    return rows


def _key(value: Value | MissingType) -> tuple[str, str]:
    return type(value).__name__, repr(value)


def _expected(
    rows: SearchedClass, filter_: Filter | None, aggregate: Aggregate
) -> dict[Any, tuple[Key, dict[str, Value]]]:
    group, compute = aggregate.group, aggregate.compute
    groups: dict[Any, tuple[Key, list[str]]] = {} if group else {(): ((), [])}
    for id_ in matching(filter_, rows.rows):
        key = tuple(map(lookup_of(id_, rows.rows[id_]), group))
        groups.setdefault(tuple(map(_key, key)), (key, []))[1].append(id_)
    return {
        group_key: (key, {name: _compute(rows, ids, c) for name, c in compute.items()})
        for group_key, (key, ids) in groups.items()
    }


def _compute(rows: SearchedClass, ids: Sequence[str], computation: Computation) -> Value:
    if computation.path is None:
        return len(ids)
    lookups = [lookup_of(id_, rows.rows[id_])(computation.path) for id_ in ids]
    values: list[Any] = [v for v in lookups if v is not None and not isinstance(v, MissingType)]
    if computation.function is Function.COUNT:
        return len(values)
    return _FUNCTIONS[computation.function](values) if values else None


def _sum(values: Sequence[Any]) -> Any:
    return type(values[0])(_total(values))


_EXACT: Final = Context(prec=20_000, traps=[Inexact])
"""Enough digits for sums of decimals with the largest and the smallest exponent."""


def _total(values: Sequence[Any]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, decimal_of(value) if isinstance(value, float) else value)
    return total


def _avg(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Decimal):
        return Context(prec=DECIMAL_DIGITS).divide(_total(values), Decimal(len(values)))
    return float(Fraction(_total(values)) / len(values))


_FUNCTIONS: Final[Mapping[Function, Callable[[Sequence[Any]], Any]]] = {
    Function.SUM: _sum,
    Function.AVG: _avg,
    Function.MIN: partial(min, key=sortable),
    Function.MAX: partial(max, key=sortable),
}


async def _check(rows: SearchedClass, filter_: Filter | None, aggregate: Aggregate) -> None:
    """Require that a store which offers an aggregate computes it correctly."""
    store, fragment = _aggregating(rows.subject.store), rows.subject.fragment
    if not store.aggregates(fragment, filter_, aggregate):
        return
    group, compute = aggregate.group, aggregate.compute
    groups = await store.aggregate(
        fragment, filter_, aggregate, limit=_MAX_GROUPS, deadline_s=_WAIT_S
    )
    expected = _expected(rows, filter_, aggregate)
    keys = [tuple(map(_key, key)) for key, _ in groups]
    same(sorted(keys), sorted(expected), f"groups by {group}")
    for group_key, (_, results) in zip(keys, groups, strict=True):
        same(sorted(results), sorted(compute), "names of results")
        for name, value in results.items():
            expected_value = expected[group_key][1][name]
            label = f"{compute[name].function} of {compute[name].path} in {group_key}"
            require(
                identical(value, expected_value),
                f"{label}: expected {show(expected_value)}, found {show(value)}",
            )


def _aggregating(store: Store) -> Aggregating:
    if not isinstance(store, Aggregating):
        raise NotOffered("the store does not group and compute")
    return store


def _computations() -> dict[str, Computation]:
    """Return every computation of every field, and the number of objects."""
    computations = {
        "objects": Computation(Function.COUNT),
        "lists": Computation(Function.COUNT, ("l",)),
    }
    for type_, function in product((*_NUMBERS, *_OTHER_TYPES), Function):
        if type_ in _NUMBERS or function not in (Function.SUM, Function.AVG):
            computations[f"{function}_{type_}"] = Computation(function, (type_.value,))
    return computations


async def _prepare(scratch: Scratch) -> SearchedClass:
    _aggregating(scratch.store)
    return await create_searched_class(scratch, _fields(), _rows())


_GROUPS: Final[Sequence[tuple[Path, ...]]] = ((), (("g",),), (("h",),), (("h",), ("g",)), (ID,))


@THEME.proves("contract")
async def each_function_computes(scratch: Scratch) -> None:
    """Each function of each type is computed over the values, ignoring nulls and missing ones."""
    rows = await _prepare(scratch)
    for name, computation in _computations().items():
        for group in _GROUPS:
            await _check(rows, None, Aggregate(group, {name: computation}))


@THEME.proves("contract")
async def functions_are_computed_together(scratch: Scratch) -> None:
    """Many computations in one call do not disturb each other."""
    rows = await _prepare(scratch)
    fragment, store = rows.subject.fragment, _aggregating(rows.subject.store)
    compute = {
        name: computation
        for name, computation in _computations().items()
        if store.aggregates(fragment, None, Aggregate((), {name: computation}))
    }
    for group in _GROUPS:
        await _check(rows, None, Aggregate(group, compute))
        await _check(rows, None, Aggregate(group, {}))


@THEME.proves("contract")
async def every_type_groups(scratch: Scratch) -> None:
    """Values of each type make groups, and so do null and missing."""
    rows = await _prepare(scratch)
    for type_ in _VALUES:
        await _check(rows, None, Aggregate(((type_.value,),), {"n": Computation(Function.COUNT)}))


_ODD: Final[Mapping[FieldType, Sequence[Any]]] = {
    FieldType.FLOAT: (2.0**63, 1e300, 1e301, 1e300, -1e300),
    FieldType.STRING: ("$where", "$g", "%", "$where", "$$ROOT", "\U0001f600"),
}


@THEME.proves("contract")
async def odd_values_group(scratch: Scratch) -> None:
    """Floats beyond all integers of 64 bits, and texts like paths, form separate groups."""
    _aggregating(scratch.store)
    for type_, values in _ODD.items():
        rows: list[Values] = [{"g": value} for value in values]
        searched = await create_searched_class(scratch, [plain(type_, "g")], rows)
        await _check(searched, None, Aggregate((("g",),), {"n": Computation(Function.COUNT)}))


_CANCELLING: Final[Sequence[tuple[float, ...]]] = (
    (0.1, 0.2),
    (0.1, 0.2, -0.3),
    (1e300, 1.0, 0.1, -1e300),
    (1e23, -1e22, 2.0**54 + 64, 2.0**63),
    (5e-324, 0.1, -0.1),
    (0.1, 0.7, 0.7),
)


@THEME.proves("contract")
async def floats_are_added_as_they_are_written(scratch: Scratch) -> None:
    """Sums and averages of floats are computed from their shortest decimals, and rounded once."""
    _aggregating(scratch.store)
    rows: list[Values] = [{"g": f"{n}", "float": v} for n, vs in enumerate(_CANCELLING) for v in vs]
    fields = [plain(FieldType.STRING, "g"), plain(FieldType.FLOAT, "float")]
    searched = await create_searched_class(scratch, fields, rows)
    for function in (Function.SUM, Function.AVG):
        compute = {"n": Computation(function, ("float",))}
        await _check(searched, None, Aggregate((("g",),), compute))


@THEME.proves("contract")
async def large_floats_have_an_average(scratch: Scratch) -> None:
    """An average of floats is within their range, even if their sum exceeds it."""
    _aggregating(scratch.store)
    rows: list[Values] = [{"float": value} for value in (1.7e308, 1.7e308, 1.6e308)]
    searched = await create_searched_class(scratch, [plain(FieldType.FLOAT, "float")], rows)
    aggregate = Aggregate((), {"n": Computation(Function.AVG, ("float",))})
    await _check(searched, None, aggregate)


@THEME.proves("contract")
async def decimals_far_apart_are_added(scratch: Scratch) -> None:
    """A sum of the largest and the smallest decimals has all its digits; its average is rounded."""
    _aggregating(scratch.store)
    extremes = (Decimal("1E+6144"), Decimal("1E-6143"))
    for values in (extremes, (*extremes, -extremes[1])):
        rows: list[Values] = [{"decimal": value} for value in values]
        searched = await create_searched_class(scratch, [plain(FieldType.DECIMAL, "decimal")], rows)
        for function in (Function.SUM, Function.AVG):
            aggregate = Aggregate((), {"n": Computation(function, ("decimal",))})
            await _check(searched, None, aggregate)


@THEME.proves("contract")
async def filters_restrict_aggregates(scratch: Scratch) -> None:
    """Only records that match the filter are aggregated, even if there are none."""
    rows = await _prepare(scratch)
    compute = {
        "n": Computation(Function.COUNT),
        "sum": Computation(Function.SUM, ("integer",)),
        "most": Computation(Function.MAX, ("string",)),
    }
    filters: list[Filter] = [
        Compare(Comparison.GE, ("h",), 1),
        Compare(Comparison.EQ, ("h",), None),
        In(("h",), (2, None, 7)),
        Not(Compare(Comparison.EQ, ("g",), "x")),
        Not(Exists(("h",))),
        Like(("g",), "_"),
        Compare(Comparison.EQ, ("h",), 99),
        Compare(Comparison.LT, ID, "a"),
    ]
    for filter_, group in product(filters, _GROUPS):
        await _check(rows, filter_, Aggregate(group, compute))
        await _check(rows, filter_, Aggregate(group, {"n": compute["n"]}))


@THEME.proves("contract")
async def matches_of_a_filter_are_counted(scratch: Scratch) -> None:
    """A count alone is the number of matching records, by any filter, without deleted ones."""
    rows = await _prepare(scratch)
    count_only = Aggregate((), {"n": Computation(Function.COUNT)})
    filters = [
        None,
        Compare(Comparison.GE, ("h",), 1),
        Compare(Comparison.LT, ("h",), 2),
        Compare(Comparison.EQ, ("h",), None),
        Between(("h",), 1, 2),
        In(("h",), (2, None, 2, 7)),
        And((Exists(("h",)), Not(Compare(Comparison.EQ, ("h",), 1)))),
        Not(Exists(("h",))),
        Compare(Comparison.EQ, ("g",), "x"),
        In(ID, (*sorted(rows.rows)[::3], "nobody")),
        Compare(Comparison.GE, ID, sorted(rows.rows)[5]),
    ]
    deleted = sorted(rows.rows)[::4]
    for filter_ in filters:
        await _check(rows, filter_, count_only)
    for id_ in deleted:
        await rows.subject.delete(id_)
    remaining = replace(rows, rows={i: v for i, v in rows.rows.items() if i not in deleted})
    for filter_ in filters:
        await _check(remaining, filter_, count_only)


@THEME.proves("contract")
async def estimates_are_numbers_of_records(scratch: Scratch) -> None:
    """An estimate is a possible number of records, right or wrong."""
    rows = await _prepare(scratch)
    store, fragment = rows.subject.store, rows.subject.fragment
    if not isinstance(store, Estimating):
        raise NotOffered("the store does not estimate")
    for filter_ in (None, Compare(Comparison.GE, ("h",), 1), Not(Exists(("h",)))):
        if store.estimates(fragment, filter_):
            estimate = await store.estimate(fragment, filter_, deadline_s=_WAIT_S)
            require(type(estimate) is int, f"estimated {show(estimate)}, which is no number")
            require(estimate >= 0, f"estimated {estimate} records")


@THEME.proves("contract")
async def groups_are_limited(scratch: Scratch) -> None:
    """No more groups are returned than the limit."""
    rows = await _prepare(scratch)
    store, fragment = _aggregating(rows.subject.store), rows.subject.fragment
    for field in ("g", "h"):
        by_field = Aggregate(((field,),), {"n": Computation(Function.COUNT)})
        if store.aggregates(fragment, None, by_field):
            groups = await store.aggregate(fragment, None, by_field, limit=2, deadline_s=_WAIT_S)
            same(len(groups), 2, "groups of at most two")
