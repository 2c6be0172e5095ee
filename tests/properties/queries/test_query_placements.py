"""A property of placements: a query's result does not depend on the systems of the fields."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mediator.base.clock import SystemClock
from mediator.base.errors import Invalid
from mediator.data_plane.executor import Executor
from mediator.model.evaluate import holds, lookup_of
from mediator.model.filters import ID, And, Compare, Comparison, Exists, Filter, In, Not
from mediator.model.guard import NullGuard
from mediator.model.query import Aggregate, Computation, CountMode, Function, OrderBy, Query
from mediator.operations.calls import StoreCalls
from mediator.query.budget import Limits
from mediator.query.totals import Total
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.tree import MISSING, ClassSchema, Field, Schema
from mediator.schema.types import FieldType, Values
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Fragment, SystemConfig
from mediator.stores.systems import Systems
from tests.conformance.drawn_queries import FIELDS, FILTERS, drawn_records
from tests.conformance.drawn_queries import SCALARS as NAMES
from tests.conformance.real_stores import opened
from tests.process.queries.querying import PLACEMENTS, fill
from tests.process.service import scratch_systems

PAGE = 7
DATABASE = "placements"
NUMBERS = ("n", "k", "f", "d")
EXACT = Context(prec=10_000)


ROWS = drawn_records()


def route_of(systems: tuple[str, ...]) -> ClassRoute:
    """Distribute the fields over the systems round robin."""
    name = "_".join(systems)
    fields_by_system: dict[str, dict[str, Field]] = {system: {} for system in systems}
    for number, field in enumerate(FIELDS.values()):
        fields_by_system[systems[number % len(systems)]][field.name] = field
    fragments = tuple(
        Fragment(system, DATABASE, name, fields, {"main" if not number else system: tuple(fields)})
        for number, (system, fields) in enumerate(fields_by_system.items())
    )
    return ClassRoute(ClassSchema(name, FIELDS), 1, fragments)


@pytest.fixture(scope="module")
async def data(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Executor]:
    """Executes queries on a class for each placement; all have the same records."""
    clock, systems, configs = SystemClock(), Systems(), (redis_config, postgresql_config)
    calls = StoreCalls(systems, NullGuard(), clock)
    unused: Any = None
    executor = Executor(calls, unused, unused, Limits(), clock, lambda _: None)
    routes = {"_".join(names): route_of(names) for names in PLACEMENTS}
    classes = {name: route.schema for name, route in routes.items()}
    database = DatabaseRoute(Schema(DATABASE, classes), routes)
    executor.adopt(RoutingModel(1, {DATABASE: database}))
    async with AsyncExitStack() as stack:
        for config in await stack.enter_async_context(scratch_systems(*configs, mongodb_config)):
            with_deadline = replace(config, deadline_s=30.0)
            store = await stack.enter_async_context(opened(with_deadline))
            systems.add(GuardedStore(store, lambda _: None, clock))
        for name, route in routes.items():
            for fragment in route.fragments:
                await systems.get(fragment.system).store.prepare(fragment)
            await fill(executor.model, calls, DATABASE, name, ROWS)
        yield executor


def rank(value: Any) -> Any:
    """Return a value's rank among those of its type: after missing and null."""
    return (0, 0) if value is MISSING else (1, 0) if value is None else (2, value)


def before(order: Sequence[OrderBy]) -> Callable[[str, str], int]:
    """Return a comparison of records in an order; ids have the direction of the last level."""

    def compare(one: str, other: str) -> int:
        down = False
        for level in order:
            down = level.descending
            a, b = (rank(lookup_of(id_, ROWS[id_])(level.path)) for id_ in (one, other))
            if a != b:
                return 1 if (a > b) is not down else -1
        return 0 if one == other else 1 if (one > other) is not down else -1

    return compare


def expected_ids(query: Query) -> list[str]:
    """Return the expected ids of a query's objects, in order."""
    ids = [i for i, v in ROWS.items() if not query.filter or holds(query.filter, lookup_of(i, v))]
    return sorted(ids, key=cmp_to_key(before(query.order)))


def project(id_: str, fields: tuple[str, ...] | None) -> tuple[str, Values]:
    return id_, {n: v for n, v in ROWS[id_].items() if fields is None or n in fields}


async def pages(data: Executor, query: Query) -> AsyncIterator[tuple[str, Values]]:
    """Read a query page by page; HTTP leaves out fields that the projection does not name."""
    while True:
        result = await data.query(query)
        for item in result.items:
            values = item.outcome.values or {}
            fields = query.fields
            assert not item.outcome.partial
            projection = {n: v for n, v in values.items() if fields is None or n in fields}
            yield item.outcome.id, projection
        if result.next is None:
            return
        assert len(result.items) == query.limit
        query = replace(query, after=result.next)


LEVELS = st.builds(OrderBy, st.sampled_from([*((name,) for name in NAMES), ("id",)]), st.booleans())
ORDERS = st.lists(LEVELS, max_size=3, unique_by=lambda level: level.path).map(tuple)
PROJECTIONS = st.none() | st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True).map(
    lambda names: tuple(sorted(names))
)
OPTIONAL_FILTERS: st.SearchStrategy[Filter | None] = st.none() | FILTERS
CONJUNCTIONS: st.SearchStrategy[Filter] = st.lists(FILTERS, min_size=2, max_size=3).map(
    lambda operands: And(tuple(operands))
)
EVERYWHERE = pytest.mark.parametrize("systems", PLACEMENTS, ids="+".join)
DRAWN_SETTINGS = settings(max_examples=25, suppress_health_check=list(HealthCheck))


def query_of(systems: tuple[str, ...], **members: Any) -> Query:
    return Query(DATABASE, "_".join(systems), allow_scan=True, **members)


@EVERYWHERE
@DRAWN_SETTINGS
@given(filter_=OPTIONAL_FILTERS | CONJUNCTIONS, order=ORDERS, fields=PROJECTIONS)
@example(filter_=Not(Exists(("k",))), order=(OrderBy(("n",), descending=True),), fields=("f",))
@example(filter_=None, order=(OrderBy(("k",), descending=True), OrderBy(("s",))), fields=None)
@example(filter_=None, order=(), fields=("docs",))
@example(filter_=Compare(Comparison.EQ, ("k",), 9), order=(OrderBy(("s",)),), fields=())
async def test_objects_are_found_in_order(
    data: Executor,
    systems: tuple[str, ...],
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    fields: tuple[str, ...] | None,
) -> None:
    query = query_of(systems, filter=filter_, order=order, fields=fields, limit=PAGE)
    expected = [project(id_, fields) for id_ in expected_ids(query)]
    assert [item async for item in pages(data, query)] == expected


@EVERYWHERE
@DRAWN_SETTINGS
@given(filter_=OPTIONAL_FILTERS | CONJUNCTIONS, order=ORDERS)
@example(filter_=None, order=())
@example(filter_=In(ID, (*list(ROWS)[:20], "nobody")), order=())
@example(filter_=Compare(Comparison.GE, ("k",), 1), order=(OrderBy(("s",)),))
async def test_the_total_is_the_number_of_objects_on_all_pages(
    data: Executor, systems: tuple[str, ...], filter_: Filter | None, order: tuple[OrderBy, ...]
) -> None:
    query = query_of(systems, filter=filter_, order=order, fields=(), limit=PAGE)
    counted = replace(query, count=CountMode.EXACT)
    expected = Total(len([item async for item in pages(data, query)]), CountMode.EXACT)
    first = await data.query(counted)
    assert first.total == expected
    if first.next is not None:
        assert (await data.query(replace(counted, after=first.next))).total == expected
    total = (await data.query(replace(query, count=CountMode.ESTIMATED))).total
    assert total is not None
    if total.count is CountMode.EXACT:
        assert total == expected
    else:
        assert total.objects > len(first.items)


COMPUTATIONS = st.one_of(
    st.just(Computation(Function.COUNT)),
    st.builds(
        lambda function, name: Computation(function, (name,)),
        st.sampled_from((Function.COUNT, Function.MIN, Function.MAX)),
        st.sampled_from(NAMES),
    ),
    st.builds(
        lambda function, name: Computation(function, (name,)),
        st.sampled_from((Function.SUM, Function.AVG)),
        st.sampled_from(NUMBERS),
    ),
)


def evaluate(computation: Computation, rows: Sequence[Values]) -> Any:
    """Evaluate a computation over a group in plain Python."""
    if computation.path is None:
        return len(rows)
    name = computation.path[0]
    values: list[Any] = [row[name] for row in rows if row.get(name) is not None]
    match computation.function:
        case Function.COUNT:
            return len(values)
        case Function.MIN:
            return min(values, default=None)
        case Function.MAX:
            return max(values, default=None)
    if not values:
        return None
    total = _sum(values)
    if computation.function is Function.SUM:
        return total
    return total / len(values) if not isinstance(total, Decimal) else _mean(total, len(values))


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Decimal):
        total = Decimal(0)
        for value in values:
            total = EXACT.add(total, value)
        return total
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def _mean(total: Decimal, count: int) -> Decimal:
    return Context(prec=34).divide(total, Decimal(count))


def is_summable(computation: Computation) -> bool:
    """Whether a sum over any group is within the range of its type."""
    if computation.function not in (Function.SUM, Function.AVG) or computation.path is None:
        return True
    return computation.path[0] not in ("f", "d")


def are_alike(one: Any, other: Any) -> bool:
    """Whether two results are equal; floats within a relative difference of 1e-9."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and bool(one == other)


def groups(query: Query) -> Iterator[tuple[Any, list[Values]]]:
    """Return the groups of a query's objects, in the order of their common values."""
    assert query.aggregate is not None
    rows: defaultdict[Any, list[Values]] = defaultdict(list)
    if not query.aggregate.group:
        rows[()] = []
    for id_ in expected_ids(query):
        lookup = lookup_of(id_, ROWS[id_])
        rows[tuple(rank(lookup(path)) for path in query.aggregate.group)].append(ROWS[id_])
    yield from sorted(rows.items(), key=lambda pair: pair[0])


@EVERYWHERE
@DRAWN_SETTINGS
@given(
    filter_=OPTIONAL_FILTERS,
    group=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    compute=st.lists(COMPUTATIONS.filter(is_summable), min_size=1, max_size=3),
)
async def test_groups_are_computed(
    data: Executor,
    systems: tuple[str, ...],
    filter_: Filter | None,
    group: list[str],
    compute: list[Computation],
) -> None:
    computations = {f"c{number}": computation for number, computation in enumerate(compute)}
    aggregate = Aggregate(tuple((name,) for name in group), computations)
    query = query_of(systems, filter=filter_, aggregate=aggregate, limit=1_000)
    result = await data.query(query)
    expected = list(groups(query))
    assert [tuple(map(rank, row.group)) for row in result.rows] == [key for key, _ in expected]
    for row, (_, rows) in zip(result.rows, expected, strict=True):
        for name, computation in computations.items():
            assert are_alike(row.computed[name], evaluate(computation, rows)), (name, row)


@EVERYWHERE
@pytest.mark.parametrize("name", ["f", "d"])
async def test_sums_of_floats_and_decimals(
    data: Executor, systems: tuple[str, ...], name: str
) -> None:
    """Within a range that has a sum; beyond it all placements refuse alike."""
    low, high = (-1.5, 1.5) if name == "f" else (Decimal("-1.1"), Decimal(10))
    within = And((Compare(Comparison.GE, (name,), low), Compare(Comparison.LE, (name,), high)))
    compute = {
        "sum": Computation(Function.SUM, (name,)),
        "mean": Computation(Function.AVG, (name,)),
    }
    query = query_of(systems, filter=within, aggregate=Aggregate((), compute))
    if name == "d":
        # One value is 1E-6143: the exact sum has thousands of digits.
        with pytest.raises(Invalid):
            await data.query(query)
        compute = {"mean": compute["mean"]}
        query = replace(query, aggregate=Aggregate((), compute))
    [row] = (await data.query(query)).rows
    rows = [ROWS[id_] for id_ in expected_ids(query)]
    for result, computation in compute.items():
        assert are_alike(row.computed[result], evaluate(computation, rows)), (result, row)


def test_the_oracle_detects_wrong_results() -> None:
    assert FIELDS["f"].type is FieldType.FLOAT
    assert are_alike(1.0, 1.0 + 1e-12)
    assert not are_alike(1.0, 1.0 + 1e-6)
    assert not are_alike(1, 1.0)
    assert not are_alike(True, 1)
    down = before((OrderBy(("n",), descending=True),))
    ids = sorted(ROWS, key=cmp_to_key(down))
    values = [ROWS[id_].get("n", MISSING) for id_ in ids]
    assert values[0] == 2**63 - 1
    assert values[-1] is MISSING
    assert evaluate(Computation(Function.AVG, ("n",)), [{"n": 1}, {"n": 2}, {"n": None}]) == 1.5
    assert Fraction(_sum([2**63 - 1, 1])) == 2**63
