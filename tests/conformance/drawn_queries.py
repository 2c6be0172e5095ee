"""A class with every type of field, records with edge values, and generated filters."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

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
    conjuncts,
)
from mediator.model.query import OrderBy
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.query_cases import SearchedClass, matching
from mediator.stores.conformance.scratch import ScratchClass
from mediator.stores.port import (
    Fragment,
    Queryable,
    Status,
    Store,
    Write,
    WriteKind,
)

FIELDS = {
    field.name: field
    for field in (
        Field("s", FieldType.STRING, index=True),
        Field("w", FieldType.STRING),
        Field("r", FieldType.REFERENCE, to="x", index=True),
        Field("n", FieldType.INTEGER, index=True),
        Field("k", FieldType.INTEGER),
        Field("f", FieldType.FLOAT, index=True),
        Field("d", FieldType.DECIMAL, index=True),
        Field("o", FieldType.BOOLEAN, index=True),
        Field("t", FieldType.TIMESTAMP, index=True),
        Field("b", FieldType.BINARY, index=True),
        Field("u", FieldType.BINARY),
        Field("doc", FieldType.DOCUMENT),
        Field("tags", FieldType.SET, items=FieldType.STRING, index=True),
        Field("log", FieldType.LIST, items=FieldType.INTEGER),
        Field("scores", FieldType.LIST, items=FieldType.FLOAT, index=True),
        Field("docs", FieldType.LIST, items=FieldType.DOCUMENT),
        Field("names", FieldType.MAP, items=FieldType.STRING),
        Field("hits", FieldType.MAP, items=FieldType.INTEGER),
        Field("deep", FieldType.MAP, items=FieldType.DOCUMENT),
    )
}
COMPOUND = (("r", "w", "n"), ("o", "k", "f"), ("f", "u"))
SCALARS = ("s", "w", "r", "n", "k", "f", "d", "o", "t", "b", "u")

TEXTS = (
    *("", "a", "A", "ab", "aab", "a\n", "a\r\n", "\n", "a%", "a_b", "a\\b", "\\", "%", "_"),
    *("é", "e\u0301", "\ud7ff", "\ue000", "\ue001", "\ue000\ue001x", "\uffff", "a\uffff"),
    *("\U00010000", "\U0001f600", "a\U0001f600b", "\U0001f600\ue000", "\ue123\U0010ffff"),
    *("$x", "$where", ".*", "^a$", "[a]", "{}", "\x01", "\u2028", '{"$gt": ""}', "\\E.*\\Q"),
)
INTEGERS = (0, 1, -1, 9, 10, -10, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63))
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.1, 1.5, 5e-324, -5e-324, 2.0**53, 2.0**62, 2.0**63),
    *(2.0**63 * (1 + 2**-52), -(2.0**63), 1e300, 1.1e300, -1.7976931348623157e308),
)
DECIMALS = tuple(
    map(Decimal, ("0", "-0", "1", "1.0", "-1", "-1.1", "0.1", "10", "9" * 34, "1E-6143", "-1E+40"))
)
TIMES = tuple(
    datetime(year, 1, 1, microsecond=us, tzinfo=UTC)
    for year, us in ((1, 0), (1, 1), (1969, 999_999), (1970, 0), (1970, 1), (2026, 5), (9999, 7))
)
OCTETS = (b"", b"\0", b"\0\0", b"a", b"ab", b"b", b"\xff", b"\xff\0", b"a\0b", b"\x80")
JSONS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 1.0, 1.5, -1, 2**53 + 1, 2.0**53, 2**63 - 1, 2.0**63, 1e300),
    *("", "a", "ab", "\uffff", "\U00010000", "$x", "1", "true"),
    *([], [1], ["a"], [{"b": 1}, {"b": "a"}], {}, {"b": 1}, {"b": None}, {"b": {"c": "a"}}),
    *({"b": [1, "a"]}, {"b": [{"c": 1}]}, {"0": 1}, {"$x": "a"}, {"b.c": 1}, {"": 1}),
)
POOLS: dict[str, Sequence[Any]] = {
    **dict.fromkeys("swr", TEXTS),
    **dict.fromkeys("nk", INTEGERS),
    "f": FLOATS,
    "d": DECIMALS,
    "o": (False, True),
    "t": TIMES,
    **dict.fromkeys("bu", OCTETS),
}
KEYS = ("a", "b", "b.c", "$x", "", "0", "c")
IDS = ("a", "ab", "a!", "b", "é", "\uffff", "\U00010000", "\ue000", "$x", "x\ue001", "z")
PATHS: tuple[Path, ...] = tuple(
    [("doc", *keys) for keys in (("a",), ("a", "b"), ("a", "b", "c"), ("b.c",), ("$x",), ("0",))]
    + [("doc", "a", "0"), ("doc", "a", "b.c"), ("doc", "a", ""), ("doc", "a", "b", "0")]
    + [("deep", "a"), ("deep", "a", "b"), ("deep", "$x", "b", "c")]
)

RECORDS = 100


class QueryableStore(Store, Queryable, Protocol):
    """A store that answers searches."""


class Population:
    """A store, a class in it and the class's records; Hypothesis prints none of them."""

    def __init__(
        self, store: QueryableStore, fragment: Fragment, records: Mapping[str, Values]
    ) -> None:
        self.store = store
        self.fragment = fragment
        self.records = dict(records)

    async def create(self, records: Mapping[str, Values]) -> None:
        """Add records."""
        writes = [_creation(self.fragment, id_, values) for id_, values in records.items()]
        results = await self.store.write(writes)
        assert {result.status for result in results} == {Status.APPLIED}
        self.records.update(records)


def drawn_records() -> dict[str, Values]:
    """Return the same records every time: missing, null and edge values of every field."""
    draw = random.Random(7)
    ids = [*IDS, *(f"{draw.choice(IDS)}{number}" for number in range(RECORDS - len(IDS)))]
    return {id_: _values(draw) for id_ in ids}


def _values(draw: random.Random) -> Values:
    makers: dict[str, Callable[[], Any]] = {
        **{name: partial(draw.choice, pool) for name, pool in POOLS.items()},
        "doc": lambda: {key: draw.choice(JSONS) for key in draw.sample(KEYS, 3)},
        "tags": lambda: sorted(draw.sample(TEXTS, draw.randrange(3))),
        "log": lambda: draw.sample(INTEGERS, draw.randrange(3)),
        "scores": lambda: [n + 0.0 for n in draw.sample(FLOATS, draw.randrange(3))],  # no -0.0
        "docs": lambda: [{"a": draw.choice(JSONS)} for _ in range(draw.randrange(3))],
        "names": lambda: {key: draw.choice(TEXTS) for key in draw.sample(KEYS[:4], 2)},
        "hits": lambda: {key: draw.choice(INTEGERS) for key in draw.sample(KEYS[:4], 2)},
        "deep": lambda: {key: {"b": draw.choice(JSONS)} for key in draw.sample(KEYS[:4], 2)},
    }
    values: Values = {}
    for name, make in makers.items():
        share = draw.random()
        if share > 0.15:
            values[name] = None if share < 0.3 else make()
    return values


async def populate(store: QueryableStore) -> Population:
    """Create a class with the records, and a deleted one."""
    groups = {"main": tuple(FIELDS)}
    name = f"c{uuid.uuid4().hex[:12]}"
    fragment = Fragment(store.config.name, "d", name, FIELDS, groups, indexes=COMPOUND)
    await store.prepare(fragment)
    population = Population(store, fragment, {})
    await population.create(drawn_records())
    await store.write([_creation(fragment, "gone", {"n": 1, "s": "a", "k": 1})])
    await store.write([Write(fragment, "gone", WriteKind.DELETE, uuid.uuid4().hex, ("main",))])
    return population


def _creation(fragment: Fragment, id_: str, values: Values) -> Write:
    return Write(fragment, id_, WriteKind.CREATE, uuid.uuid4().hex, ("main",), values)


def _comparisons(path: Path, pool: Sequence[Any]) -> st.SearchStrategy[Filter]:
    values = st.sampled_from(pool)
    nullable = values | st.none()
    comparisons = [c for c in Comparison if c not in (Comparison.EQ, Comparison.NE)]
    return st.one_of(
        st.builds(Compare, st.sampled_from(comparisons), st.just(path), values),
        st.builds(Compare, st.just(Comparison.EQ), st.just(path), nullable),
        st.builds(Compare, st.just(Comparison.NE), st.just(path), nullable),
        st.builds(Between, st.just(path), values, values),
        st.builds(In, st.just(path), st.lists(nullable, max_size=4).map(tuple)),
        st.just(Exists(path)),
    )


_PIECES = (
    "%",
    "%",
    "_",
    "\\%",
    "\\_",
    "\\\\",
    "\\a",
    *"aAbé",
    "\n",
    "\U0001f600",
    "\ue000",
    "\uffff",
)
PATTERNS = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=5).map("".join),
    st.sampled_from(TEXTS).map(lambda text: text.replace("\\", "\\\\")),
)


def _text_matches(path: Path) -> st.SearchStrategy[Filter]:
    return st.one_of(
        st.builds(Like, st.just(path), PATTERNS),
        st.builds(Contains, st.just(path), st.sampled_from(TEXTS)),
    )


def _leaves() -> st.SearchStrategy[Filter]:
    json = [value for value in JSONS if isinstance(value, str | int | float)]
    return st.one_of(
        *(_comparisons((name,), POOLS[name]) for name in SCALARS),
        _comparisons(ID, IDS),
        *(_text_matches(path) for path in (("s",), ("w",), ("r",), ID, ("names", "a"))),
        *(_comparisons(path, json) for path in PATHS),
        *(st.builds(Like, st.just(path), PATTERNS) for path in PATHS[:3]),
        *(_comparisons(("names", key), TEXTS) for key in KEYS[:4]),
        *(_comparisons(("hits", key), INTEGERS) for key in KEYS[:4]),
        st.sampled_from(TEXTS).map(lambda text: Contains(("tags",), text)),
        st.sampled_from(INTEGERS).map(lambda number: Contains(("log",), number)),
        st.sampled_from(FLOATS).map(lambda number: Contains(("scores",), number)),
        st.sampled_from(sorted(FIELDS)).map(lambda name: Exists((name,))),
        st.sampled_from(sorted(FIELDS)).map(lambda name: Compare(Comparison.EQ, (name,), None)),
    )


LEAVES = _leaves()
FILTERS = st.recursive(
    LEAVES,
    lambda operands: st.one_of(
        st.lists(operands, max_size=3).map(lambda members: And(tuple(members))),
        st.lists(operands, max_size=3).map(lambda members: Or(tuple(members))),
        operands.map(Not),
    ),
    max_leaves=6,
)


def _index_conditions(path: Path, pool: Sequence[Any]) -> st.SearchStrategy[Filter]:
    """Draw conditions on one field that map to intervals of its index."""
    conditions = _comparisons(path, pool).filter(
        lambda condition: (
            not (isinstance(condition, Compare) and condition.comparison is Comparison.NE)
        )
    )
    missing = st.just(Not(Exists(path)))
    lists = st.lists(conditions | missing, min_size=1, max_size=3)
    return lists.map(lambda operands: operands[0] if len(operands) == 1 else And(tuple(operands)))


INDEXED = st.one_of(
    *(_index_conditions((name,), POOLS[name]) for name in SCALARS if FIELDS[name].index),
    _index_conditions(ID, IDS).filter(lambda filter_: Not(Exists(ID)) not in conjuncts(filter_)),
)
"""Filters that map to intervals of one index."""

ORDERS = st.one_of(
    st.just(()),
    st.sampled_from([(OrderBy(ID, descending),) for descending in (False, True)]),
    st.builds(
        lambda name, descending, by_id: (
            OrderBy((name,), descending),
            *([OrderBy(ID, descending)] if by_id else []),
        ),
        st.sampled_from(SCALARS),
        st.booleans(),
        st.booleans(),
    ),
)


async def check(
    population: Population,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    *,
    limit: int,
    after: int,
) -> None:
    """Compare a search with the oracle, from the start and after a record."""
    records, subject = population.records, ScratchClass(population.store, population.fragment)
    searched = SearchedClass(subject, population.store, records)
    await searched.check(filter_, order, limit=limit)
    plan = searched.plan(filter_, order)
    if plan.ordered:
        last_id = sorted(records)[after % len(records)]
        remaining = await searched.pages(
            plan, order, limit, after=searched.position(last_id, order)
        )
        ids = searched.in_order([*{last_id, *matching(plan.pushed, records)}], order)
        assert [record.id for record in remaining] == ids[ids.index(last_id) + 1 :]
