"""Searches of the MongoDB store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.asynchronous.collection import AsyncCollection

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
from mediator.model.query import OrderBy, Position
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import Document, layout_of
from mediator.stores.mongo.search.searcher import pushdown
from mediator.stores.port import (
    AccessPath,
    Fragment,
    SearchRequest,
    StoreRefused,
    StoreTooCostly,
    SystemConfig,
)
from tests.conformance.drawn_queries import (
    FIELDS,
    FILTERS,
    LEAVES,
    ORDERS,
    TEXTS,
    Population,
    check,
    populate,
)
from tests.conformance.real_stores import isolated_mongo

MANY_EXAMPLES = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FRAGMENT = Fragment("mongo", "d", "c", FIELDS, {"main": tuple(FIELDS)})


@pytest.fixture(scope="module")
async def population(mongodb_config: SystemConfig) -> AsyncIterator[Population]:
    config = replace(mongodb_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)
    store = MongoStore(config)
    await store.open()
    population = await populate(store)
    yield population
    client = store.link.session.client
    await client.drop_database(store.link.session.database("d"))
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


N_IS_1 = Compare(Comparison.EQ, ("n",), 1)
K_FROM_1 = Compare(Comparison.GE, ("k",), 1)
HAS_DOC = Compare(Comparison.EQ, ("doc", "a", "b"), {"c": 1})
BY_N = (OrderBy(("n",)),)


@pytest.mark.parametrize(
    ("filter_", "order", "access", "ordered"),
    [
        (None, (), AccessPath.INDEX, True),
        (None, BY_N, AccessPath.INDEX, True),
        (None, (OrderBy(("k",)),), AccessPath.SERVER_SCAN, True),
        (None, (OrderBy(("n",)), OrderBy(ID, descending=True)), AccessPath.CLIENT_SCAN, False),
        (None, (OrderBy(("n",)), OrderBy(("k",))), AccessPath.CLIENT_SCAN, False),
        (None, (OrderBy(("b",)),), AccessPath.CLIENT_SCAN, False),
        (N_IS_1, (OrderBy(("k",)),), AccessPath.INDEX, True),
        (K_FROM_1, (), AccessPath.SERVER_SCAN, True),
        (And((K_FROM_1, N_IS_1)), (), AccessPath.INDEX, True),
        (Or((K_FROM_1, N_IS_1)), (), AccessPath.SERVER_SCAN, True),
        (Or((Between(("n",), 1, 2), N_IS_1)), (), AccessPath.INDEX, True),
        (Not(N_IS_1), (), AccessPath.SERVER_SCAN, True),
        (Like(("s",), "a%b_"), (), AccessPath.INDEX, True),
        (Like(("s",), "%b_"), (), AccessPath.SERVER_SCAN, True),
        (In(ID, ("a", "b")), BY_N, AccessPath.KEYS, True),
        (Compare(Comparison.GT, ID, "a"), (), AccessPath.INDEX, True),
        (Contains(("tags",), "a"), (), AccessPath.INDEX, True),
        (Contains(("log",), 1), (), AccessPath.SERVER_SCAN, True),
        (Contains(("s",), "a"), (), AccessPath.SERVER_SCAN, True),
        (Compare(Comparison.EQ, ("o",), True), (OrderBy(("k",)),), AccessPath.INDEX, True),
        (Compare(Comparison.EQ, ("w",), "a"), (OrderBy(("n",)),), AccessPath.SERVER_SCAN, True),
        (Exists(("doc", "a")), (), AccessPath.SERVER_SCAN, True),
    ],
)
@pytest.mark.parametrize("is_stand_in", [False, True])
def test_pushdown_reports_the_access_path(
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    access: AccessPath,
    ordered: bool,
    is_stand_in: bool,
) -> None:
    plan = pushdown(FRAGMENT, filter_, order, is_stand_in=is_stand_in)
    assert (plan.pushed, plan.residual) == (filter_, None)
    assert (plan.access, plan.ordered) == (access, ordered)


@pytest.mark.parametrize(
    ("filter_", "mongod", "stand_in"),
    [
        (HAS_DOC, False, False),
        (Not(HAS_DOC), False, False),
        (Or((N_IS_1, HAS_DOC)), False, False),
        (Compare(Comparison.EQ, ("log",), [1]), False, False),
        (Compare(Comparison.LT, ("b",), b"a"), False, False),
        (Compare(Comparison.EQ, ("b",), b"a"), True, True),
        (Contains(("docs",), {"a": 1}), False, False),
        (Contains(("doc", "a"), "x"), False, False),
        (Exists(("log", "0")), False, False),
        (Like(("s",), "%\ue000%"), False, False),
        (Like(("s",), "%\U0001f600%"), True, True),
        (Like(("s",), "x" * 20_000), False, False),
        (Compare(Comparison.LT, ("f",), 2.0**63), True, False),
        (Compare(Comparison.LT, ("f",), 2.0**62), True, True),
        (Compare(Comparison.LT, ("n",), 2**63 - 1), True, True),
        (Compare(Comparison.EQ, ("doc", "a"), 2**63 - 1), True, False),
        (Compare(Comparison.LT, ("doc", "a"), "\uffff"), True, False),
        (Compare(Comparison.LT, ("doc", "a"), "z"), True, True),
        (Compare(Comparison.LT, ("names", "a"), "\uffff"), True, False),
        (Compare(Comparison.LT, ("s",), "\uffff"), True, True),
    ],
)
def test_filters_that_a_server_evaluates_inexactly_are_residual(
    filter_: Filter, mongod: bool, stand_in: bool
) -> None:
    for is_stand_in, exact in ((False, mongod), (True, stand_in)):
        plan = pushdown(FRAGMENT, filter_, (), is_stand_in=is_stand_in)
        expected = (filter_, None) if exact else (None, filter_)
        assert (plan.pushed, plan.residual) == expected
    both = pushdown(FRAGMENT, And((N_IS_1, HAS_DOC)), (), is_stand_in=False)
    assert (both.pushed, both.residual) == (N_IS_1, HAS_DOC)


@pytest.mark.parametrize("text", TEXTS)
async def test_texts_are_never_syntax(population: Population, text: str) -> None:
    for path in (("s",), ID, ("doc", "a"), ("names", "$x"), ("doc", text), ("names", text)):
        for filter_ in (
            Compare(Comparison.EQ, path, text),
            In(path, (text, None)),
            Like(path, "%{}%".format(text.replace("\\", "\\\\"))),
        ):
            await check(population, filter_, (), limit=90, after=3)


async def test_patterns_with_exponential_backtracking_end_in_time(population: Population) -> None:
    await population.create({"long": {"w": "a" * 20_000}})
    await check(population, Like(("w",), "%a" * 40 + "%b"), (), limit=10, after=0)
    await check(population, Like(("w",), "%a" * 40 + "%"), (), limit=10, after=0)


async def test_a_search_outside_the_pushdown_is_refused(population: Population) -> None:
    for request in (
        SearchRequest(population.fragment, HAS_DOC, (), 10),
        SearchRequest(population.fragment, None, (OrderBy(("b",)),), 10),
        SearchRequest(population.fragment, Compare(Comparison.EQ, ("s",), "\ud800"), (), 10),
    ):
        with pytest.raises(StoreRefused):
            await population.store.find(request)


async def test_a_search_without_time_left_is_too_costly(population: Population) -> None:
    with pytest.raises(StoreTooCostly):
        await population.store.find(
            SearchRequest(population.fragment, None, (), 10, deadline_s=0.0)
        )


@pytest.mark.parametrize("after", [None, Position((), "a")])
async def test_a_search_for_ids_reads_no_other_record(
    population: Population, after: Position | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in reads all records unless the query has a list of ids at the top."""
    queries: list[Document] = []
    find_documents = AsyncCollection.find

    def record_query(self: Any, query: Document, *arguments: Any, **options: Any) -> Any:
        queries.append(query)
        return find_documents(self, query, *arguments, **options)

    monkeypatch.setattr(AsyncCollection, "find", record_query)
    id_ = max(population.records)
    equal = Compare(Comparison.EQ, ID, id_)
    for filter_ in (equal, In(ID, (id_,)), And((equal, Exists(("s",))))):
        queries.clear()
        await population.store.find(
            SearchRequest(population.fragment, filter_, (), 10, after=after)
        )
        assert [query["_id"] for query in queries] == [{"$in": [ordered_text(id_)]}]


async def test_compound_indexes_come_and_go_with_the_schema(mongodb_config: SystemConfig) -> None:
    config = replace(mongodb_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)
    async with isolated_mongo(config) as store:
        session = store.link.session
        fields = {name: FIELDS[name] for name in ("n", "k", "s")}
        fragment = Fragment("mongo", "d", "c", fields, {"main": tuple(fields)})
        for indexes in ((("n", "k"), ("k", "s")), (("k", "s"),), ()):
            await store.prepare(replace(fragment, indexes=indexes))
            information = await session.collection(layout_of(fragment)).index_information()
            keys = {
                name: index["key"]
                for name, index in information.items()
                if name.startswith("compound")
            }
            assert keys == {
                f"compound {a},{b}": [(f"values.{a}", 1), (f"values.{b}", 1), ("_id", 1)]
                for a, b in indexes
            }


async def test_indexes_of_paths_come_and_go_with_the_schema(mongodb_config: SystemConfig) -> None:
    config = replace(mongodb_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)
    async with isolated_mongo(config) as store:
        collection = store.link.session.collection
        for paths in (("a.b", "$x"), ("a.b",), ()):
            field = Field("d", FieldType.DOCUMENT, indexed_paths=paths)
            fragment = Fragment("mongo", "d", "c", {"d": field}, {"main": ("d",)})
            await store.prepare(fragment)
            information = await collection(layout_of(fragment)).index_information()
            keys = [index["key"] for name, index in information.items() if name.startswith("path ")]
            stored = ["values.d.a.b", "values.d.%24x"][: len(paths)]
            assert sorted(keys) == sorted([(path, 1), ("_id", 1)] for path in stored)
            equal = Compare(Comparison.EQ, ("d", "a", "b"), "x")
            access = AccessPath.INDEX if paths else AccessPath.SERVER_SCAN
            assert store.pushdown(fragment, equal, ()).access is access
