"""A property of joins: pushing them down to a system changes no result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mediator.base.clock import SystemClock
from mediator.data_plane.executor import Executor
from mediator.model.evaluate import Lookup, holds, lookup_of
from mediator.model.filters import And, Compare, Comparison, Exists, Filter, Like, Not, Or, Path
from mediator.model.guard import NullGuard
from mediator.model.operations import Delete, Outcome
from mediator.model.query import Join, OrderBy, Query
from mediator.operations.calls import StoreCalls
from mediator.query.budget import Limits
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.tree import MISSING, ClassSchema, Field, Schema
from mediator.schema.types import FieldType, Values
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Fragment, SystemConfig
from mediator.stores.systems import Systems
from tests.conformance.drawn_queries import FIELDS, FILTERS, drawn_records
from tests.conformance.real_stores import opened
from tests.process.queries.querying import fill
from tests.process.service import scratch_systems, unique

DATABASE, PAGE = "joins", 7
NEAR, AWAY, EXPIRING, OUTER = "near", "away", "expiring", "outer"
"""Three similar classes: on the outer class's system, on another one, with a TTL; and the outer."""

ROWS = drawn_records()
GONE = "gone"
FIELDS_OUTER = {
    "to": Field("to", FieldType.REFERENCE, to=NEAR),
    "far": Field("far", FieldType.REFERENCE, to=AWAY),
    "soon": Field("soon", FieldType.REFERENCE, to=EXPIRING),
    "up": Field("up", FieldType.REFERENCE, to=OUTER, index=True),
    "n": Field("n", FieldType.INTEGER, index=True),
}
JOINS = (
    Join("a", ("to",), NEAR),
    Join("b", ("up",), OUTER),
    Join("c", ("b", "to"), NEAR, fields=("s", "tags")),
    Join("d", ("b", "up"), OUTER),
    Join("e", ("far",), AWAY, fields=("n",)),
    Join("f", ("soon",), EXPIRING, fields=()),
)
NEARBY = JOINS[:4]


def outer_rows() -> dict[str, Values]:
    """Return objects whose references are round robin: existing, missing, null and absent."""
    targets = [*ROWS, "nobody", GONE, None, MISSING]
    rows: dict[str, Values] = {}
    for number, target in enumerate(targets):
        values: dict[str, Any] = {"to": target, "far": target, "soon": target}
        values["up"] = f"o{(number * 7) % (len(targets) + 3)}" if number % 5 else None
        values["n"] = number % 4 if number % 3 else MISSING
        rows[f"o{number}"] = {k: v for k, v in values.items() if v is not MISSING}
    return rows


OUTERS = outer_rows()
TABLES = {OUTER: OUTERS, NEAR: ROWS, AWAY: ROWS, EXPIRING: ROWS}


def route_of(name: str, fields: dict[str, Field], system: str, ttl_s: float | None) -> ClassRoute:
    fragment = Fragment(system, DATABASE, name, fields, {"main": tuple(fields)}, ttl_s=ttl_s)
    return ClassRoute(ClassSchema(name, fields), 1, (fragment,))


@pytest.fixture(scope="module")
async def data(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[Executor]:
    """Executes queries on classes in PostgreSQL; one class is in Redis."""
    clock, systems = SystemClock(), Systems()
    calls, unused = StoreCalls(systems, NullGuard(), clock), None
    executor = Executor(calls, unused, unused, Limits(), clock, lambda _: None)  # type: ignore[arg-type]
    routes = {
        NEAR: route_of(NEAR, FIELDS, "postgres", None),
        AWAY: route_of(AWAY, FIELDS, "redis", None),
        EXPIRING: route_of(EXPIRING, FIELDS, "postgres", 3_600.0),
        OUTER: route_of(OUTER, FIELDS_OUTER, "postgres", None),
    }
    schema = Schema(DATABASE, {name: route.schema for name, route in routes.items()})
    executor.adopt(RoutingModel(1, {DATABASE: DatabaseRoute(schema, routes)}))
    async with AsyncExitStack() as stack:
        configs = (redis_config, postgresql_config)
        for config in await stack.enter_async_context(scratch_systems(*configs)):
            store = await stack.enter_async_context(opened(replace(config, deadline_s=30.0)))
            systems.add(GuardedStore(store, lambda _: None, clock))
        for name, route in routes.items():
            await systems.get(route.anchor.system).store.prepare(route.anchor)
            await fill(executor.model, calls, DATABASE, name, TABLES[name])
        await fill(executor.model, calls, DATABASE, NEAR, {GONE: {"s": "a", "n": 1}})
        await executor.write(Delete(DATABASE, NEAR, GONE, unique()))
        yield executor


def joined_ids(id_: str, joins: tuple[Join, ...]) -> dict[str, str | None]:
    """Return the ids of the objects joined to an object, by alias."""
    ids: dict[str, str | None] = {}
    for join in joins:
        *outer, reference = join.reference
        source = ids[outer[0]] if outer else id_
        target: Any = None if source is None else OUTERS[source].get(reference)
        ids[join.alias] = target if target in TABLES[join.class_name] else None
    return ids


def lookup_in(id_: str, joins: tuple[Join, ...]) -> Lookup:
    own_lookup, targets = lookup_of(id_, OUTERS[id_]), joined_ids(id_, joins)
    classes = {join.alias: join.class_name for join in joins}

    def lookup(path: Path) -> Any:
        if path[0] not in classes:
            return own_lookup(path)
        target = targets[path[0]]
        if target is None:
            return MISSING
        return lookup_of(target, TABLES[classes[path[0]]][target])(path[1:])

    return lookup


def expected_document(id_: str, joins: tuple[Join, ...]) -> dict[str, Any]:
    """Return an object with its joined objects, as in a response."""
    document: dict[str, Any] = {"id": id_, **OUTERS[id_]}
    for join in joins:
        target = joined_ids(id_, joins)[join.alias]
        if target is None:
            document[join.alias] = None
            continue
        values = TABLES[join.class_name][target]
        projection = {n: v for n, v in values.items() if join.fields is None or n in join.fields}
        document[join.alias] = {"id": target, **projection}
    return document


def on_alias(filter_: Filter, alias: str) -> Filter:
    """Return a filter applied to a joined object."""
    match filter_:
        case And(operands) | Or(operands):
            return replace(
                filter_, operands=tuple(on_alias(operand, alias) for operand in operands)
            )
        case Not(operand):
            return Not(on_alias(operand, alias))
    return replace(filter_, path=(alias, *filter_.path))


OWN: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Compare, st.sampled_from(Comparison), st.just(("n",)), st.integers(0, 4)),
    st.sampled_from(sorted(FIELDS_OUTER)).map(lambda name: Exists((name,))),
)


@st.composite
def joined_filters(draw: st.DrawFn, outer_aliases: list[str], other_aliases: list[str]) -> Filter:
    """Draw a filter on one joined object; the outer class supports fewer conditions."""
    if draw(st.integers(0, 2)) == 0:
        return on_alias(draw(OWN), draw(st.sampled_from(outer_aliases)))
    return on_alias(draw(FILTERS), draw(st.sampled_from(other_aliases)))


def conditions(joins: tuple[Join, ...]) -> st.SearchStrategy[Filter]:
    """Draw filters on objects and their joined objects."""
    outer_aliases = [join.alias for join in joins if join.class_name == OUTER]
    other_aliases = [join.alias for join in joins if join.class_name != OUTER]
    leaves = st.one_of(
        OWN,
        joined_filters(outer_aliases, other_aliases),
    )
    condition = st.recursive(
        leaves,
        lambda operands: st.one_of(
            st.lists(operands, min_size=1, max_size=3).map(lambda ps: Or(tuple(ps))),
            operands.map(Not),
        ),
        max_leaves=3,
    )
    return st.lists(condition, min_size=1, max_size=3).map(lambda operands: And(tuple(operands)))


def documents_of(result: Any, joins: tuple[Join, ...]) -> Iterator[dict[str, Any]]:
    """Return the documents of a result in either form."""
    if result.documents is not None:
        yield from result.documents
        return
    fields = {join.alias: join.fields for join in joins}
    for item in result.items:
        document = {"id": item.outcome.id, **item.outcome.values}
        for alias, outcome in item.joined.items():
            document[alias] = None if outcome is None else project(outcome, fields[alias])
        yield document


def project(outcome: Outcome, fields: tuple[str, ...] | None) -> dict[str, Any]:
    values = outcome.values or {}
    projection = {n: v for n, v in values.items() if fields is None or n in fields}
    return {"id": outcome.id, **projection}


async def query_all(data: Executor, query: Query) -> list[dict[str, Any]]:
    """Return the documents of all pages of a query."""
    items: list[dict[str, Any]] = []
    while True:
        result = await data.query(query)
        page = list(documents_of(result, query.joins))
        items += page
        if result.next is None:
            return items
        assert len(page) == query.limit
        query = replace(query, after=result.next)


ORDERS: dict[tuple[OrderBy, ...], Any] = {
    (): lambda id_: id_,
    (OrderBy(("n",)),): lambda id_: (OUTERS[id_].get("n", -1), id_),
}
DRAWN_SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
MATCHES = Like(("a", "s"), "%a%")


EVERY_ORDER = pytest.mark.parametrize("order", ORDERS, ids=["by id", "by n"])


@EVERY_ORDER
@DRAWN_SETTINGS
@given(filter_=conditions(NEARBY), as_documents=st.booleans())
async def test_conditions_on_objects_of_one_system_filter_like_the_oracle(
    data: Executor, order: tuple[OrderBy, ...], filter_: Filter, as_documents: bool
) -> None:
    await check(data, filter_, NEARBY, order, as_documents=as_documents)


@EVERY_ORDER
@DRAWN_SETTINGS
@given(filter_=conditions(JOINS), as_documents=st.booleans())
async def test_conditions_on_objects_elsewhere_filter_like_the_oracle(
    data: Executor, order: tuple[OrderBy, ...], filter_: Filter, as_documents: bool
) -> None:
    await check(data, filter_, JOINS, order, as_documents=as_documents)


@example(filter_=MATCHES)
@example(filter_=Not(MATCHES))
@example(filter_=Or((MATCHES, Compare(Comparison.EQ, ("n",), 1))))
@example(filter_=Compare(Comparison.NE, ("a", "s"), "a"))
@example(filter_=Compare(Comparison.EQ, ("a", "s"), None))
@example(filter_=Exists(("c", "id")))
@example(filter_=And((Exists(("d", "id")), Like(("c", "w"), "%"))))
@example(filter_=And((Compare(Comparison.GE, ("d", "n"), 1), MATCHES)))
@settings(max_examples=1)
@given(filter_=st.just(MATCHES))
async def test_some_conditions_on_joined_objects(data: Executor, filter_: Filter) -> None:
    for as_documents in (False, True):
        await check(data, filter_, NEARBY, (), as_documents=as_documents)


async def check(
    data: Executor,
    filter_: Filter,
    joins: tuple[Join, ...],
    order: tuple[OrderBy, ...],
    *,
    as_documents: bool,
) -> None:
    """Compare a query with its evaluation in plain Python."""
    members: dict[str, Any] = {"joins": joins, "order": order, "as_documents": as_documents}
    query = Query(DATABASE, OUTER, filter_, limit=PAGE, allow_scan=True, **members)
    ids = sorted((i for i in OUTERS if holds(filter_, lookup_in(i, joins))), key=ORDERS[order])
    assert await query_all(data, query) == [expected_document(id_, joins) for id_ in ids]
