"""The law of the index: it never misses a query whose result a write has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mediator.model.effects import Effect, Image, unknown
from mediator.model.evaluate import holds, lookup_of
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
)
from mediator.model.order import beyond, sort_key
from mediator.model.query import OrderBy, Position, Query
from mediator.query.access_predicates import access_predicates_of
from mediator.query.invalidation.index import QueryIndex
from mediator.query.invalidation.registered_query import (
    RegisteredQuery,
    Truth,
    compile_three_valued,
)
from mediator.query.predicate_index import Intervals
from mediator.schema.types import Values

FIELDS = ("x", "y", "z")
TEXTS = st.text("aäb%_\U0001f600", max_size=3)
SCALARS: st.SearchStrategy[Any] = (
    st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.5, -0.0, 1.0, 2.0**53, Decimal("0.5"), Decimal("1.00")])
    | TEXTS
    | st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)])
    | st.sampled_from([b"", b"a"])
)
ANY_VALUES: st.SearchStrategy[Any] = (
    st.none()
    | SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(st.just("k"), SCALARS | st.lists(SCALARS, max_size=1), max_size=1)
)
OBJECTS: st.SearchStrategy[Values] = st.dictionaries(st.sampled_from(FIELDS), ANY_VALUES)
PATHS = st.sampled_from([("x",), ("y",), ("z",), ("x", "k"), ("id",)])
PATTERNS = st.lists(st.sampled_from(["%", "_", "a", "ä", r"\%", "\U0001f600"]), max_size=3)
LEAVES: st.SearchStrategy[Filter] = (
    st.builds(Compare, st.sampled_from(Comparison), PATHS, ANY_VALUES)
    | st.builds(Between, PATHS, SCALARS, SCALARS)
    | st.builds(In, PATHS, st.lists(ANY_VALUES, max_size=3).map(tuple))
    | st.builds(Like, PATHS, PATTERNS.map("".join))
    | st.builds(Contains, PATHS, SCALARS)
    | st.builds(Exists, PATHS)
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
ORDERS = st.lists(st.builds(OrderBy, PATHS, st.booleans()), max_size=2).map(tuple)
QUERIES = st.builds(
    Query,
    st.just("news"),
    st.just("things"),
    filter=st.none() | FILTERS,
    order=ORDERS,
    limit=st.integers(1, 3),
    fields=st.none() | st.sets(st.sampled_from(FIELDS)).map(lambda names: tuple(sorted(names))),
)
OTHER_OBJECTS = st.dictionaries(st.sampled_from("bcd"), OBJECTS)


def visible_result(query: Query, objects: Mapping[str, Values]) -> str:
    """Return the result as a client sees it, including types of numbers and signs of zero."""
    matches = [(id_, v) for id_, v in objects.items() if _matches(query, id_, v)]
    key = sort_key(query.order)
    matches.sort(key=lambda pair: key(lookup_of(*pair), pair[0]))
    page = [(id_, _project(query, values)) for id_, values in matches[: query.limit]]
    return repr((page, len(matches) > query.limit))


def _matches(query: Query, id_: str, values: Values) -> bool:
    lookup = lookup_of(id_, values)
    if query.after is not None and not beyond(query.order, query.after)(lookup, id_):
        return False
    return query.filter is None or holds(query.filter, lookup)


def _project(query: Query, values: Values) -> list[tuple[str, Any]]:
    names = FIELDS if query.fields is None else query.fields
    return [(name, values[name]) for name in names if name in values]


def image(values: Values | None, known: set[str]) -> Image | None:
    """Return an image of the object ``a`` of which only these fields are known."""
    if values is None:
        return None
    return Image("a", frozenset(known), {n: v for n, v in values.items() if n in known})


def touched_by(before: Values | None, after: Values | None) -> frozenset[str] | None:
    if before is None or after is None:
        return None
    missing = object()
    return frozenset(
        name for name in FIELDS if repr(before.get(name, missing)) != repr(after.get(name, missing))
    )


@settings(max_examples=600)
@given(
    queries=st.lists(QUERIES, min_size=1, max_size=4),
    position=st.none() | OBJECTS,
    others=OTHER_OBJECTS,
    before=st.none() | OBJECTS,
    after=st.none() | OBJECTS,
    known=st.tuples(*[st.sets(st.sampled_from(FIELDS))] * 2) | st.just((set(FIELDS),) * 2),
    more=st.sets(st.sampled_from(FIELDS)),
    vague=st.booleans(),
)
def test_no_query_whose_result_changed_is_missed(
    queries: list[Query],
    position: Values | None,
    others: dict[str, Values],
    before: Values | None,
    after: Values | None,
    known: tuple[set[str], set[str]],
    more: set[str],
    vague: bool,
) -> None:
    index = QueryIndex()
    queries = [_after(query, position) for query in queries]
    for number, query in enumerate(queries):
        index.put(str(number), RegisteredQuery(query))
    exact = touched_by(before, after)
    touched = None if exact is None else exact | more
    effect = Effect(image(before, known[0]), image(after, known[1]), touched)
    if vague:
        effect = Effect(unknown("a"), unknown("a"), touched)
    changed = index.changed([effect])
    for number, query in enumerate(queries):
        before_result = visible_result(query, others | ({} if before is None else {"a": before}))
        after_result = visible_result(query, others | ({} if after is None else {"a": after}))
        assert before_result == after_result or str(number) in changed, (query, effect)


def _after(query: Query, position: Values | None) -> Query:
    if position is None:
        return query
    lookup = lookup_of("b", position)
    after = Position(tuple(lookup(level.path) for level in query.order), "b")
    return Query(**{**{n: getattr(query, n) for n in query.__slots__}, "after": after})


@given(FILTERS, OBJECTS, st.sets(st.sampled_from(FIELDS)))
@example(Not(Compare(Comparison.EQ, ("x",), 1)), {"x": 2}, set())
def test_a_known_result_holds_for_any_unknown_fields(
    filter_: Filter, values: Values, known: set[str]
) -> None:
    image_ = image(values, known)
    assert image_ is not None
    result = compile_three_valued(filter_)(image_)
    matches = holds(filter_, lookup_of("a", values))
    assert result in ((Truth.TRUE if matches else Truth.FALSE), Truth.UNKNOWN)
    assert known != set(FIELDS) or result is not Truth.UNKNOWN


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=150), st.integers(0, 9))
def test_intervals_are_found_by_the_values_within_them(
    bounds: list[tuple[int, int]], value: int
) -> None:
    intervals = Intervals()
    names = {str(number) for number in range(len(bounds))}
    for number, (low, high) in enumerate(bounds):
        intervals.add(str(number), low or None, high or None, names)
    expected = {
        str(number)
        for number, (low, high) in enumerate(bounds)
        if (not low or low <= value) and (not high or value <= high)
    }
    assert set(intervals.around(value)) == expected


def index_of(filters: Sequence[Filter], fields: tuple[str, ...] | None = ()) -> QueryIndex:
    index = QueryIndex()
    for number, filter_ in enumerate(filters):
        query = Query("news", "things", filter=filter_, fields=fields)
        index.put(str(number), RegisteredQuery(query))
    return index


def test_a_known_object_changes_only_results_it_enters_or_leaves() -> None:
    filters = [Compare(Comparison.EQ, ("x",), number) for number in range(10)]
    all_fields = frozenset(FIELDS)
    moved = Effect(
        Image("a", all_fields, {"x": 1}), Image("a", all_fields, {"x": 2}), frozenset("x")
    )
    assert index_of(filters).changed([moved]) == {"1", "2"}
    unrelated = Effect(
        Image("a", all_fields, {"x": 1}), Image("a", all_fields, {"x": 1}), frozenset("y")
    )
    assert index_of(filters).changed([unrelated]) == set()
    assert index_of(filters, None).changed([unrelated]) == {"1"}
    assert index_of(filters).changed([Effect(None, Image("a", all_fields, {"x": 3}))]) == {"3"}


def test_unknown_values_count_as_possible_matches() -> None:
    filters = [Compare(Comparison.EQ, ("x",), number) for number in range(3)]
    blind = Effect(unknown("a"), Image("a", frozenset("x"), {"x": 1}), frozenset("x"))
    assert index_of(filters).changed([blind]) == {"0", "1", "2"}
    conjunction = And((Compare(Comparison.EQ, ("x",), 1), Compare(Comparison.EQ, ("y",), 1)))
    half = Image("a", frozenset("x"), {"x": 2})
    assert index_of([conjunction]).changed([Effect(half, half, frozenset("y"))]) == set()


def test_an_unparsable_query_is_changed_by_every_write() -> None:
    index = QueryIndex()
    index.put("new", None)
    image_ = Image("a", frozenset(FIELDS), {})
    assert index.changed([Effect(image_, image_, frozenset("x"))]) == {"new"}
    index.discard("new")
    assert len(index) == 0
    assert not index.depends_on(None)


def test_most_filters_have_an_access_predicate() -> None:
    equal = Compare(Comparison.EQ, ("x",), 1)
    anywhere = Like(("y",), "%a")
    assert access_predicates_of(And((anywhere, equal))) is not None
    assert access_predicates_of(Or((anywhere, equal))) is None
    assert access_predicates_of(Or((equal, Between(("y",), 1, 2)))) is not None
    costs: list[Filter] = [Compare(Comparison.GT, ("x",), 1), Like(("x",), "a%"), equal]
    for worse, better in pairwise(costs):
        assert access_predicates_of(And((worse, better))) == access_predicates_of(better)


_SAME_PREDICATE_TWICE = Or(
    tuple(
        And((Compare(Comparison.EQ, ("x",), 1), Compare(comparison, ("y",), number)))
        for comparison, number in [(Comparison.GT, 2), (Comparison.LT, 1)]
    )
)


@given(st.lists(FILTERS, max_size=8), st.sets(st.integers(0, 7)), OBJECTS)
@example([_SAME_PREDICATE_TWICE], {0}, {"x": 1})
@example([Or((Compare(Comparison.LT, ("x",), [1]),))], {0}, {"x": [0]})
def test_a_discarded_query_is_not_found(
    filters: list[Filter], discarded: set[int], values: Values
) -> None:
    index = index_of(filters)
    for number in discarded:
        index.discard(str(number))
    remaining = {number for number in range(len(filters)) if number not in discarded}
    assert set(index) == {str(number) for number in remaining}
    effect = Effect(None, Image("a", frozenset(FIELDS), values))
    matches = {str(n) for n in remaining if holds(filters[n], lookup_of("a", values))}
    assert index.changed([effect]) == matches
