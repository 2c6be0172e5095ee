"""Laws of the query language: patterns, filters, orders, aggregates, and their parsing."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mediator.base.errors import Invalid
from mediator.model.evaluate import holds, lookup_of
from mediator.model.exact import decimal_of
from mediator.model.filters import And, Between, Compare, Comparison, Filter, In, Not, Or
from mediator.model.order import Top, beyond, position_of, rank, sort_key
from mediator.model.patterns import matcher
from mediator.model.query import Aggregate, Computation, Function, OrderBy
from mediator.query.aggregation import Groups
from mediator.query.parameters import parse_parameters
from mediator.query.parser import parse_query_document
from mediator.query.paths import NameScope, decode_position, encode_position
from mediator.schema.parse import parse_schema
from mediator.schema.tree import MISSING
from mediator.schema.types import Values

SCHEMA = parse_schema(
    "society",
    {
        "classes": {
            "people": {
                "fields": {
                    "name": {"type": "string"},
                    "year": {"type": "integer"},
                    "score": {"type": "float"},
                    "money": {"type": "decimal"},
                    "born": {"type": "timestamp"},
                    "login": {"type": "document"},
                    "tags": {"type": "set", "items": "string"},
                    "marks": {"type": "map", "items": "integer"},
                    "boss": {"type": "reference", "to": "people"},
                }
            }
        }
    },
)

ANY_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, -0.0, 1.0, 2.0**53])
    | st.text("ab%é\U0001f600", max_size=2)
    | st.lists(st.integers(0, 1), max_size=1)
)
OBJECTS: st.SearchStrategy[Values] = st.dictionaries(st.sampled_from("xyz"), ANY_VALUES)
PATHS = st.sampled_from([("x",), ("y",), ("z",), ("x", "k")])
LEAVES: st.SearchStrategy[Filter] = (
    st.builds(Compare, st.sampled_from(Comparison), PATHS, ANY_VALUES)
    | st.builds(Between, PATHS, ANY_VALUES, ANY_VALUES)
    | st.builds(In, PATHS, st.lists(ANY_VALUES, max_size=3).map(tuple))
)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    LEAVES,
    lambda operands: (
        st.builds(And, st.lists(operands, max_size=3).map(tuple))
        | st.builds(Or, st.lists(operands, max_size=3).map(tuple))
        | st.builds(Not, operands)
    ),
    max_leaves=6,
)
ORDERS = st.lists(st.builds(OrderBy, PATHS, st.booleans()), max_size=3).map(tuple)


def _as_regex(pattern: str) -> str:
    wild = {"%": ".*", "_": "."}
    operands = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join(wild.get(p) or re.escape(p.removeprefix("\\") or "\\") for p in operands)


@given(st.text("ab%_\n.", max_size=8), st.text("ab\n.", max_size=10))
def test_a_pattern_matches_like_its_regular_expression(pattern: str, text: str) -> None:
    expected = re.fullmatch(_as_regex(pattern), text, re.DOTALL)
    assert matcher(pattern)(text) is (expected is not None)


@given(st.text("ab%_\\", max_size=8))
def test_an_escaped_text_matches_only_itself(text: str) -> None:
    pattern = re.sub(r"([%_\\])", r"\\\1", text)
    assert matcher(pattern)(text)
    assert not matcher(pattern)(text + "a")


@given(FILTERS, FILTERS, OBJECTS)
def test_logic_is_two_valued(one: Filter, other: Filter, values: Values) -> None:
    lookup = lookup_of("id", values)
    assert holds(Not(one), lookup) is not holds(one, lookup)
    both = And((Not(one), Not(other)))
    assert holds(Not(Or((one, other))), lookup) is holds(both, lookup)


@given(PATHS, ANY_VALUES, OBJECTS)
def test_comparisons_of_one_value_agree(
    path: tuple[str, ...], constant: Any, values: Values
) -> None:
    lookup = lookup_of("id", values)
    results = {c: holds(Compare(c, path, constant), lookup) for c in Comparison}
    assert results[Comparison.EQ] is not results[Comparison.NE]
    assert not (results[Comparison.LT] and results[Comparison.GE])
    assert results[Comparison.EQ] is holds(In(path, (constant,)), lookup)
    if results[Comparison.LE] and results[Comparison.GE]:
        assert results[Comparison.EQ]


@given(ORDERS, st.lists(OBJECTS, max_size=8), st.integers(1, 4))
def test_pages_of_an_order_make_up_the_order(
    order: tuple[OrderBy, ...], objects: list[Values], size: int
) -> None:
    key = sort_key(order)
    lookups = [(f"id{n}", lookup_of(f"id{n}", values)) for n, values in enumerate(objects)]
    expected = [id_ for id_, _ in sorted(lookups, key=lambda pair: key(pair[1], pair[0]))]
    ids: list[str] = []
    is_beyond = None
    while True:
        top = Top[tuple[str, Any]](size)
        for id_, lookup in lookups:
            if is_beyond is None or is_beyond(lookup, id_):
                top.add(key(lookup, id_), (id_, lookup))
        page = top.items()
        if not page:
            break
        ids += [id_ for id_, _ in page]
        is_beyond = beyond(order, position_of(order, page[-1][1], page[-1][0]))
    assert ids == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=20))
def test_integers_are_added_exactly(numbers: list[int | None]) -> None:
    compute = {f.value: Computation(f, ("x",)) for f in Function}
    groups = Groups(Aggregate((), compute), 1)
    for number in numbers:
        groups.add(lookup_of("id", {"x": number}))
    [row] = groups.rows()
    present = [number for number in numbers if number is not None]
    mean = float(Fraction(sum(present), len(present))) if present else None
    assert row.computed == {
        "count": len(present),
        "sum": sum(present) if present else None,
        "avg": mean,
        "min": min(present, default=None),
        "max": max(present, default=None),
    }


@given(st.lists(st.floats(-1e300, 1e300) | st.integers(-9, 9), min_size=1, max_size=3000))
def test_floats_are_added_by_their_decimal_digits(numbers: list[float]) -> None:
    compute = {f.value: Computation(f, ("x",)) for f in (Function.SUM, Function.AVG)}
    groups = Groups(Aggregate((), compute), 1)
    for number in numbers:
        groups.add(lookup_of("id", {"x": number}))
    exact = sum(Fraction(decimal_of(number)) for number in numbers)
    assert next(groups.rows()).computed == {"sum": exact, "avg": float(exact / len(numbers))} | (
        {"sum": float(exact)} if any(isinstance(number, float) for number in numbers) else {}
    )


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30).map(float))
@example(1e23)
@example(2.0**54 + 64)
@example(2.0**60)
@example(sys.float_info.max)
@example(5e-324)
def test_the_decimal_of_a_float_is_its_shortest_unique_representation(value: float) -> None:
    number = decimal_of(value)
    assert float(number) == value
    exact, nearest = Fraction(value), Fraction(number)
    for side in (-math.inf, math.inf):
        neighbour = math.nextafter(value, side)
        if math.isfinite(neighbour):
            assert abs(nearest - exact) < abs(nearest - Fraction(neighbour))
    digits = len(number.normalize().as_tuple().digits)
    for fewer in range(1, digits):
        shorter = Fraction(f"{value:.{fewer - 1}e}")
        neighbour = math.nextafter(value, math.inf if shorter > exact else -math.inf)
        assert math.isinf(neighbour) or abs(shorter - exact) >= abs(shorter - Fraction(neighbour))


def test_floats_are_added_in_decimal() -> None:
    def compute(function: Function, *numbers: float) -> Any:
        groups = Groups(Aggregate((), {"r": Computation(function, ("x",))}), 1)
        for number in numbers:
            groups.add(lookup_of("id", {"x": number}))
        return next(groups.rows()).computed["r"]

    assert compute(Function.SUM, 0.1, 0.2) == 0.3
    assert compute(Function.SUM, 0.1, 0.2, -0.3) == 0.0
    assert compute(Function.AVG, 0.1, 0.2) == 0.15
    assert compute(Function.AVG, 1.7e308, 1.7e308) == 1.7e308


def test_decimals_at_the_extremes_have_an_average_but_no_sum() -> None:
    extremes = ["9" * 34 + "E+6111", "9" * 34 + "E-6176"]
    groups = {
        function: Groups(Aggregate((), {"r": Computation(function, ("x",))}), 1)
        for function in (Function.SUM, Function.AVG)
    }
    for number in extremes:
        for group in groups.values():
            group.add(lookup_of("id", {"x": Decimal(number)}))
    with pytest.raises(Invalid, match="34 digits"):
        next(groups[Function.SUM].rows())
    assert next(groups[Function.AVG].rows()).computed == {"r": Decimal("5E+6144")}


@given(st.lists(OBJECTS, max_size=12))
def test_every_object_is_in_one_group(objects: list[Values]) -> None:
    groups = Groups(Aggregate((("x",),), {"n": Computation(Function.COUNT)}), 100)
    for values in objects:
        groups.add(lookup_of("id", values))
    rows = list(groups.rows())
    assert sum(int(str(row.computed["n"])) for row in rows) == len(objects)
    assert len({repr(rank(row.group[0])) for row in rows}) <= len(rows)


KEYS = (
    *("filter", "order", "limit", "after", "fields", "aggregate", "join", "as", "reference"),
    *("group", "compute", "eq", "lt", "and", "or", "not", "in", "between", "like", "contains"),
    *("exists", "count", "sum", "n"),
)
WORDS = (
    "name",
    "year",
    "login.a.b",
    "tags",
    "marks.k",
    "boss",
    "lead.name",
    "n",
    "*",
    "id",
    "asc",
    "exact",
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4) | JSON)
def test_every_document_is_a_query_or_refused_with_its_mistakes(document: Any) -> None:
    parsed: Any
    try:
        parsed = parse_query_document(document, SCHEMA, "people").query.limit
    except Invalid as error:
        parsed = error.locations
    assert parsed


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*WORDS, "year.ge", "name.like", "year.between", "filter", "order"])
            | st.text(max_size=5),
            st.text(max_size=6) | st.sampled_from(["1,2", "007", "true", "{}", "-year", "9" * 500]),
        ),
        max_size=4,
    )
)
def test_all_parameters_are_a_query_or_refused_with_their_mistakes(
    pairs: list[tuple[str, str]],
) -> None:
    mistakes: Any = None
    try:
        parse_parameters(pairs, SCHEMA, "people", max_limit=1000)
    except Invalid as error:
        mistakes = error.locations
    assert mistakes is None or mistakes


@pytest.mark.parametrize("path", ["name", "year", "score", "money", "born", "login.a", "marks.k"])
@given(data=st.data())
def test_positions_survive_encoding(path: str, data: st.DataObject) -> None:
    target = NameScope(SCHEMA.classes["people"]).find(path)
    constants = {
        "name": st.text("aé\U0001f600 ", max_size=3),
        "year": st.integers(-(2**63), 2**63 - 1),
        "score": st.floats(allow_nan=False, allow_infinity=False),
        "money": st.sampled_from(["0.10", "9" * 34]),
        "born": st.sampled_from(["2026-11-21T05:00:00.000001Z", "0001-01-01T00:00:00Z"]),
        "login.a": st.text("aé ", max_size=3) | st.booleans(),
        "marks.k": st.integers(0, 3),
    }[path]
    values = {} if data.draw(st.booleans()) else {path: target.from_json(data.draw(constants))}
    order = (OrderBy(target.path),)
    position = position_of(order, lambda _: values.get(path, MISSING), "id")
    assert decode_position([target], encode_position([target], position)) == position
