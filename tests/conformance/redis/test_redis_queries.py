"""Searches of the store on Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.evaluate import holds, lookup_of
from mediator.model.filters import (
    ID,
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
from mediator.model.query import Aggregate, Computation, Function, OrderBy
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.stores.port import (
    AccessPath,
    SearchRequest,
    StoreRefused,
    StoreTooCostly,
    SystemConfig,
)
from mediator.stores.redis import RedisStore
from mediator.stores.redis.search import listing
from mediator.stores.redis.search.listing import MAX_INTERVALS
from tests.conformance.drawn_queries import (
    FIELDS,
    FILTERS,
    INDEXED,
    LEAVES,
    ORDERS,
    TEXTS,
    Population,
    check,
    populate,
)


def key_of(value: Value | MissingType) -> object:
    """Return a key that separates values as groups do: by type and equality."""
    return type(value).__name__, value


MANY_EXAMPLES = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
async def population(redis_config: SystemConfig) -> AsyncIterator[Population]:
    config = replace(redis_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)
    store = RedisStore(config)
    await store.open()
    population = await populate(store)
    yield population
    await store.drop(population.fragment)
    await store.close()


@MANY_EXAMPLES
@given(LEAVES | FILTERS, ORDERS, st.integers(1, 60), st.integers(0, 1000))
async def test_searches_agree_with_the_oracle(
    population: Population,
    filter_: Filter,
    order: tuple[OrderBy, ...],
    limit: int,
    after: int,
) -> None:
    await check(population, filter_, order, limit=limit, after=after)


@MANY_EXAMPLES
@given(INDEXED, ORDERS, st.integers(1, 60), st.integers(0, 1000))
async def test_conditions_on_one_index_are_combined(
    population: Population,
    filter_: Filter,
    order: tuple[OrderBy, ...],
    limit: int,
    after: int,
) -> None:
    plan = population.store.pushdown(population.fragment, filter_, order)
    assert plan.residual is None
    await check(population, filter_, order, limit=limit, after=after)


N_IS_1 = Compare(Comparison.EQ, ("n",), 1)
N_FROM_1 = Compare(Comparison.GE, ("n",), 1)
N_TO_9 = Compare(Comparison.LE, ("n",), 9)
S_AMONG = In(("s",), ("a", None))
K_IS_1 = Compare(Comparison.EQ, ("k",), 1)
ID_IS_A = Compare(Comparison.EQ, ID, "a")
HAS_TAG, HAS_OTHER_TAG = Contains(("tags",), "a"), Contains(("tags",), "ab")
R_IS_A, W_IS_A = Compare(Comparison.EQ, ("r",), "a"), Compare(Comparison.EQ, ("w",), "a")
O_IS_TRUE, K_AMONG = Compare(Comparison.EQ, ("o",), True), In(("k",), (0, 1))
BY_R_DOWN = (OrderBy(("r",), descending=True),)
BY_R_W_N_DOWN = tuple(OrderBy((name,), descending=True) for name in "rwn")
BY_N = (OrderBy(("n",)),)
BY_N_DOWN = (OrderBy(("n",), descending=True),)


@pytest.mark.parametrize(
    ("filter_", "order", "pushed", "access", "ordered"),
    [
        (None, (), None, AccessPath.INDEX, True),
        (None, BY_N, None, AccessPath.INDEX, True),
        (None, (*BY_N_DOWN, OrderBy(ID, descending=True)), None, AccessPath.INDEX, True),
        (None, (*BY_N_DOWN, OrderBy(ID)), None, AccessPath.CLIENT_SCAN, False),
        (None, (OrderBy(("k",)),), None, AccessPath.CLIENT_SCAN, False),
        (K_IS_1, (), None, AccessPath.CLIENT_SCAN, True),
        (K_IS_1, BY_N, None, AccessPath.CLIENT_SCAN, True),
        (Not(N_IS_1), (), None, AccessPath.CLIENT_SCAN, True),
        (Or((N_IS_1, N_FROM_1)), (), None, AccessPath.CLIENT_SCAN, True),
        (Like(("s",), "a%b"), (), None, AccessPath.CLIENT_SCAN, True),
        (N_IS_1, (), N_IS_1, AccessPath.INDEX, True),
        (N_IS_1, BY_N_DOWN, N_IS_1, AccessPath.INDEX, True),
        (N_IS_1, (OrderBy(("s",)),), N_IS_1, AccessPath.INDEX, False),
        (N_FROM_1, (), N_FROM_1, AccessPath.INDEX, False),
        (N_FROM_1, BY_N, N_FROM_1, AccessPath.INDEX, True),
        (And((N_FROM_1, K_IS_1, N_TO_9)), BY_N, And((N_FROM_1, N_TO_9)), AccessPath.INDEX, True),
        (And((N_FROM_1, S_AMONG)), BY_N, S_AMONG, AccessPath.INDEX, False),
        (And((N_IS_1, S_AMONG)), (), N_IS_1, AccessPath.INDEX, True),
        (And((S_AMONG, Between(("n",), 1, 2))), (), S_AMONG, AccessPath.INDEX, False),
        (And((Exists(("s",)), N_FROM_1)), (), N_FROM_1, AccessPath.INDEX, False),
        (Not(Exists(("n",))), (), Not(Exists(("n",))), AccessPath.INDEX, True),
        (HAS_TAG, (), HAS_TAG, AccessPath.INDEX, True),
        (HAS_TAG, (OrderBy(("tags",)),), HAS_TAG, AccessPath.INDEX, False),
        (And((HAS_TAG, HAS_OTHER_TAG)), (), HAS_TAG, AccessPath.INDEX, True),
        (And((HAS_TAG, N_FROM_1)), (), HAS_TAG, AccessPath.INDEX, True),
        (And((HAS_TAG, N_IS_1)), (), N_IS_1, AccessPath.INDEX, True),
        (Contains(("log",), 1), (), None, AccessPath.CLIENT_SCAN, True),
        (Contains(("s",), "a"), (), None, AccessPath.CLIENT_SCAN, True),
        (R_IS_A, BY_R_DOWN, R_IS_A, AccessPath.INDEX, True),
        (And((R_IS_A, W_IS_A)), BY_N, And((R_IS_A, W_IS_A)), AccessPath.INDEX, True),
        (And((R_IS_A, W_IS_A)), (), And((R_IS_A, W_IS_A)), AccessPath.INDEX, False),
        (And((W_IS_A, N_FROM_1)), (), N_FROM_1, AccessPath.INDEX, False),
        (And((R_IS_A, N_FROM_1)), (), R_IS_A, AccessPath.INDEX, True),
        (
            And((N_FROM_1, R_IS_A, W_IS_A)),
            BY_N_DOWN,
            And((N_FROM_1, R_IS_A, W_IS_A)),
            AccessPath.INDEX,
            True,
        ),
        (And((O_IS_TRUE, K_AMONG)), (), And((O_IS_TRUE, K_AMONG)), AccessPath.INDEX, False),
        (And((Exists(("o",)), K_AMONG)), (), Exists(("o",)), AccessPath.INDEX, False),
        (None, BY_R_W_N_DOWN, None, AccessPath.INDEX, True),
        (None, (*BY_R_W_N_DOWN[:2], *BY_N), None, AccessPath.CLIENT_SCAN, False),
        (R_IS_A, BY_R_W_N_DOWN[1:], R_IS_A, AccessPath.INDEX, True),
        (And((N_IS_1, ID_IS_A)), (), ID_IS_A, AccessPath.KEYS, True),
        (In(ID, ("b", "a")), BY_N, In(ID, ("b", "a")), AccessPath.KEYS, False),
        (
            Compare(Comparison.GT, ID, "a"),
            (),
            Compare(Comparison.GT, ID, "a"),
            AccessPath.INDEX,
            True,
        ),
    ],
)
def test_the_most_selective_index_is_chosen(
    population: Population,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    pushed: Filter | None,
    access: AccessPath,
    ordered: bool,
) -> None:
    plan = population.store.pushdown(population.fragment, filter_, order)
    assert (plan.pushed, plan.access, plan.ordered) == (pushed, access, ordered)
    assert (plan.residual is None) == (plan.pushed == filter_)


async def test_more_values_than_one_script_searches_for(population: Population) -> None:
    values = (*range(100, 100 + 2 * MAX_INTERVALS), 9, 10)
    filter_ = In(("n",), values)
    await check(population, filter_, BY_N_DOWN, limit=3, after=5)
    assert population.store.pushdown(population.fragment, filter_, BY_N).residual is None


@pytest.mark.parametrize("max_groups", [1, 3, 500])
@pytest.mark.parametrize("name", [name for name, f in FIELDS.items() if f.has_ordered_index])
async def test_groups_are_counted_by_an_index_from_value_to_value(
    population: Population, monkeypatch: pytest.MonkeyPatch, name: str, max_groups: int
) -> None:
    monkeypatch.setattr(listing, "MAX_GROUPS", max_groups)
    store, fragment = population.store, population.fragment
    assert isinstance(store, RedisStore)
    aggregate = Aggregate(((name,),), {"n": Computation(Function.COUNT)})
    sample = next(v for r in population.records.values() if (v := r.get(name)) is not None)
    for filter_ in (
        None,
        Exists((name,)),
        Not(Exists((name,))),
        Compare(Comparison.EQ, (name,), sample),
        In((name,), (None, sample)),
        Compare(Comparison.GT, (name,), sample),
    ):
        assert store.aggregates(fragment, filter_, aggregate)
        groups = await store.aggregate(fragment, filter_, aggregate, limit=1000, deadline_s=20.0)
        counts = Counter({key_of(value): computed["n"] for (value,), computed in groups})
        assert len(counts) == len(groups)
        expected: Counter[object] = Counter()
        for id_, values in population.records.items():
            if filter_ is None or holds(filter_, lookup_of(id_, values)):
                expected[key_of(values.get(name, MISSING))] += 1
        assert counts == expected


@pytest.mark.parametrize("text", TEXTS)
async def test_texts_are_never_syntax(population: Population, text: str) -> None:
    for filter_ in (Compare(Comparison.EQ, ("s",), text), Compare(Comparison.EQ, ID, text)):
        await check(population, filter_, (), limit=7, after=3)


async def test_a_search_outside_the_pushdown_is_refused(population: Population) -> None:
    fragment = population.fragment
    for request in (
        SearchRequest(fragment, K_IS_1, (), 10),
        SearchRequest(fragment, N_FROM_1, (OrderBy(("s",)),), 10),
        SearchRequest(fragment, Compare(Comparison.EQ, ("s",), "\ud800"), (), 10),
    ):
        with pytest.raises(StoreRefused):
            await population.store.find(request)


async def test_a_search_without_time_left_is_too_costly(population: Population) -> None:
    with pytest.raises(StoreTooCostly):
        await population.store.find(
            SearchRequest(population.fragment, None, (), 10, deadline_s=0.0)
        )
