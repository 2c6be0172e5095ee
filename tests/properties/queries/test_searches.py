"""A property of every store: random searches of random records find exactly the matches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    Path,
)
from mediator.model.query import OrderBy
from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value, Values
from mediator.stores.conformance.query_cases import SearchedClass
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Queryable, SystemConfig
from tests.conformance.real_stores import STORES, opened
from tests.properties.queries.things import decimals, documents, floats, integers, texts, times

IDS = ("a", "B", "é", "\U0001f600", "_%", "b")

SCALARS: dict[str, tuple[FieldType, st.SearchStrategy[Any]]] = {
    "i": (FieldType.INTEGER, st.sampled_from((0, 1, 2**53 + 1, INTEGER_MAX, INTEGER_MIN))),
    "f": (FieldType.FLOAT, st.sampled_from((0.0, 0.1, 1.0, -1e308, 5e-324))),
    "d": (FieldType.DECIMAL, st.sampled_from(tuple(map(Decimal, ("0", "0.1", "1", "9" * 34))))),
    "s": (
        FieldType.STRING,
        st.sampled_from(("", "a", "A", "a%", "a_", "\\", "é", "e\u0301", "aa")),
    ),
    "b": (FieldType.BOOLEAN, st.booleans()),
    "t": (
        FieldType.TIMESTAMP,
        st.sampled_from(
            (datetime.min.replace(tzinfo=UTC), datetime(2024, 2, 29, microsecond=1, tzinfo=UTC))
        ),
    ),
    "y": (FieldType.BINARY, st.sampled_from((b"", b"\x00", b"a", b"a\xff"))),
}
WIDE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": integers,
    "f": floats,
    "d": decimals,
    "s": texts,
    "t": times,
    "y": st.binary(max_size=4),
}
MEMBERS = st.sampled_from((None, True, 0, 1, 1.5, "a", "1", "é", [], ["a", 1], {"k": "a"}, {}))

INNER: tuple[Value, ...] = (0, 1, 1.5, "a", "1", "é", 2**53 + 1)

FIELDS = (
    *(Field(n, t, index=i % 2 == 0) for i, (n, (t, _)) in enumerate(SCALARS.items())),
    *(Field(f"{n}{n}", t, index=i % 2 == 1) for i, (n, (t, _)) in enumerate(SCALARS.items())),
    Field("l", FieldType.LIST, items=FieldType.STRING),
    Field("e", FieldType.SET, items=FieldType.INTEGER),
    Field("o", FieldType.DOCUMENT),
    Field("m", FieldType.MAP, items=FieldType.INTEGER),
)


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy of values that often coincide, and occasionally any value."""
    first = name[0]
    common = SCALARS[first][1]
    return st.one_of(common, common, WIDE_VALUES[first]) if first in WIDE_VALUES else common


def stored_values(field: Field) -> st.SearchStrategy[Any]:
    if field.name == "l":
        return st.lists(values_of("s"), max_size=3)
    if field.name == "e":
        return st.lists(values_of("i"), max_size=3, unique=True).map(sorted)
    if field.name == "o":
        return st.one_of(st.fixed_dictionaries({"k": MEMBERS}), documents)
    if field.name == "m":
        return st.dictionaries(st.sampled_from(("k", "a.b")), values_of("i"), max_size=2)
    return values_of(field.name)


rows = st.dictionaries(
    st.sampled_from(IDS),
    st.fixed_dictionaries({}, optional={f.name: st.none() | stored_values(f) for f in FIELDS}),
    min_size=2,
    max_size=len(IDS),
)
names = st.sampled_from([f.name for f in FIELDS if f.name[0] in SCALARS])
paths: st.SearchStrategy[Path] = st.one_of(
    st.sampled_from([(f.name,) for f in FIELDS]),
    st.sampled_from([ID, ("o", "k"), ("o", "k", "k"), ("m", "k"), ("m", "a.b")]),
)


@st.composite
def scalar_leaves(draw: st.DrawFn) -> Filter:
    name = draw(names)
    value, other = draw(values_of(name)), draw(values_of(name))
    kind = draw(st.sampled_from(("compare", "null", "between", "in")))
    if kind == "between":
        return Between((name,), value, other)
    if kind == "in":
        return In((name,), draw(st.sampled_from(((value,), (value, other), (None, value), ()))))
    if kind == "null":
        return Compare(draw(st.sampled_from((Comparison.EQ, Comparison.NE))), (name,), None)
    return Compare(draw(st.sampled_from(tuple(Comparison))), (name,), value)


def _backslashes(pattern: str) -> int:
    """Return the number of trailing backslashes; an odd number leaves the last one dangling."""
    return len(pattern) - len(pattern.rstrip("\\"))


@st.composite
def inner_leaves(draw: st.DrawFn) -> Filter:
    path = draw(st.sampled_from([("o", "k"), ("o", "k", "k")]))
    value: Value = draw(st.sampled_from(INNER))
    if draw(st.booleans()):
        return Contains(path, value)
    return Compare(draw(st.sampled_from(tuple(Comparison))), path, value)


patterns = st.text("aé%_\\", max_size=4).map(lambda p: p + "\\" * (_backslashes(p) % 2))
leaves: st.SearchStrategy[Filter] = st.one_of(
    scalar_leaves(),
    scalar_leaves(),
    scalar_leaves(),
    inner_leaves(),
    st.builds(Exists, paths),
    st.builds(Like, st.sampled_from([("s",), ("ss",), ID, ("o", "k")]), patterns),
    st.builds(Contains, st.sampled_from([("s",), ("ss",), ("l",)]), values_of("s")),
    st.builds(Contains, st.just(("e",)), values_of("i")),
    st.builds(Compare, st.sampled_from(tuple(Comparison)), st.just(("m", "k")), values_of("i")),
    st.builds(Compare, st.sampled_from(tuple(Comparison)), st.just(ID), st.sampled_from(IDS)),
    st.builds(In, st.just(ID), st.lists(st.sampled_from((*IDS, "z")), max_size=3).map(tuple)),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    leaves,
    lambda operand: st.one_of(
        st.builds(Not, operand),
        st.builds(And, st.lists(operand, max_size=3).map(tuple)),
        st.builds(Or, st.lists(operand, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
optional_filters: st.SearchStrategy[Filter | None] = st.one_of(leaves, leaves, filters, st.none())
orders = st.lists(
    st.builds(OrderBy, st.one_of(names.map(lambda name: (name,)), st.just(ID)), st.booleans()),
    max_size=3,
    unique_by=lambda level: level.path,
).map(tuple)


@dataclass
class Harness:
    """One class, refilled for each example."""

    subject: ScratchClass
    store: Queryable

    async def fill(self, records: dict[str, Values]) -> SearchedClass:
        subject = self.subject
        writes = [subject.replacement(id_, values) for id_, values in records.items()]
        writes += [subject.deletion(id_) for id_ in IDS if id_ not in records]
        await subject.write_all(writes)
        return SearchedClass(subject, self.store, records)


@pytest.fixture(scope="module", params=STORES)
async def harness(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[Harness]:
    config = config_of[request.param]
    async with opened(replace(config, namespace="searches", deadline_s=30.0)) as store:
        if not isinstance(store, Queryable):
            pytest.skip(f"{request.param} does not search by filters")
        scratch = Scratch(store)
        yield Harness(await scratch.subject(*FIELDS), store)
        await scratch.clear()


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    records=rows, searches=st.lists(st.tuples(optional_filters, orders), min_size=6, max_size=12)
)
async def test_searches_find_exactly_the_matching_objects(
    harness: Harness,
    records: dict[str, Values],
    searches: list[tuple[Filter | None, tuple[OrderBy, ...]]],
) -> None:
    data = await harness.fill(records)
    for filter_, order in searches:
        await data.check(filter_, order, limit=1 + len(records) // 3)
        await data.check_positions(order, filter_)
