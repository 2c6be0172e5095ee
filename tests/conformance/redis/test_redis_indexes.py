"""Indexes on Redis: exact orders, updated by every kind of write, filled when added."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.model.filters import Compare, Comparison, Contains
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import OrderBy
from mediator.schema.tree import MISSING
from mediator.stores.port import (
    Fragment,
    SearchRequest,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from mediator.stores.redis import RedisStore, admin
from tests.conformance.in_order import in_order
from tests.conformance.redis.records import (
    EXAMPLES,
    FLOATS,
    INT64,
    Server,
    apply,
    keys_of,
    make_write,
    put,
)

INDEXED: dict[str, st.SearchStrategy[Any]] = {
    "hits": INT64 | st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1]),
    "score": FLOATS,
    "seen": st.datetimes(timezones=st.just(UTC)),
    "price": st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.sampled_from([Decimal("1E+30"), Decimal("-1E-30"), Decimal(0), Decimal("0.10")]),
    "name": st.text(alphabet=st.sampled_from("\0\1a\x7fé\uffff\U0001f600"), max_size=4),
}


def rank(value: Any) -> tuple[int, Any]:
    if value is MISSING:
        return (0, 0)
    return (1, 0) if value is None else (2, value)


@pytest.mark.parametrize("name", INDEXED)
@EXAMPLES
@given(data=st.data())
async def test_an_index_orders_exactly(
    store: RedisStore, fragment: Fragment, name: str, data: st.DataObject
) -> None:
    any_value = st.just(MISSING) | st.none() | INDEXED[name]
    values = data.draw(st.lists(any_value, min_size=5, max_size=15))
    records = {f"é{number}": value for number, value in enumerate(values)}
    await store.write(
        [
            put(fragment, id_, **({} if value is MISSING else {name: value}))
            for id_, value in records.items()
        ]
    )
    stored_values = {
        record.id: record.values.get(name, MISSING)
        for record in await store.scan(fragment, None, 1000)
    }
    expected = sorted(stored_values, key=lambda id_: (rank(stored_values[id_]), id_))
    for descending in (False, True):
        ids: list[str] = []
        after = None
        while page := await in_order(
            store, fragment, name, descending=descending, limit=7, after=after
        ):
            ids += [record.id for record in page]
            after = (page[-1].values.get(name, MISSING), page[-1].id)
        assert ids == (expected[::-1] if descending else expected)


async def test_indexes_follow_every_kind_of_write(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await store.write(
        [
            put(fragment, "a", hits=1, name="x"),
            put(fragment, "b", hits=2),
            put(fragment, "c", hits=3, score=0.5),
            apply(fragment, "a", OperatorCall("hits", Operator.INC, 5)),
            apply(fragment, "b", unset=("hits",), values={"name": None}),
            put(fragment, "c", price=Decimal("1.5")),
            put(fragment, "d", hits=9),
            make_write(fragment, "d", WriteKind.DELETE),
        ]
    )
    order = await in_order(store, fragment, "hits", limit=10)
    assert [record.id for record in order] == ["b", "c", "a"]
    for name in INDEXED:
        keys = await keys_of(server, config, f"{fragment.class_name}:i.{name}")
        assert sum([await server.zcard(key) for key in keys]) == 3


async def test_preparing_fills_a_new_index_and_removes_an_old_one(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    unindexed = replace(
        fragment, fields={n: replace(f, index=False) for n, f in fragment.fields.items()}
    )
    await store.prepare(unindexed)
    await store.write([put(unindexed, f"{n}", hits=-n) for n in range(1000)])
    assert await keys_of(server, config, f"{fragment.class_name}:i.") == []
    with pytest.raises(StoreRefused):
        await in_order(store, unindexed, "hits", limit=1)
    for _ in range(2):
        await store.prepare(fragment, unindexed)
        page = await in_order(store, fragment, "hits", limit=1000, fields=())
        assert [int(record.id) for record in page] == list(range(999, -1, -1))


async def test_a_former_index_serves_until_no_replica_searches_by_it(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    """A replica that does not know of the change still searches by the former index."""
    tags = replace(fragment.fields["tags"], index=True)
    before = replace(
        fragment, fields={**fragment.fields, "tags": tags}, indexes=(("name", "price"),)
    )
    await store.prepare(before)
    after = replace(before, fields={n: replace(f, index=False) for n, f in before.fields.items()})
    after = replace(after, indexes=())
    await store.write([put(before, "a", name="x", tags=["t"], hits=1)])
    await store.prepare(after, before)
    await store.write([put(after, "b", name="x", tags=["t"], hits=2)])
    for filter_, order in (
        (Contains(("tags",), "t"), ()),
        (Compare(Comparison.EQ, ("name",), "x"), (OrderBy(("price",)),)),
        (Compare(Comparison.GE, ("hits",), 1), ()),
    ):
        page = await store.find(SearchRequest(before, filter_, order, 9))
        assert [record.id for record in page.records] == ["a", "b"]
    await store.prepare(after, after)
    assert await keys_of(server, config, f"{fragment.class_name}:i.") == []
    assert await keys_of(server, config, f"{fragment.class_name}:indexed") == []


async def test_the_filled_share_of_an_index_is_reported(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment = Fragment("redis", "d", "shares", {}, {"main": ()})
    shares: list[float | None] = []

    async def fill(*_: object) -> None:
        shares.append(await store.built(fragment))

    monkeypatch.setattr(admin, "add_indexes", fill)
    assert await store.built(fragment) is None
    await store.prepare(fragment)
    count = len(shares)
    assert count
    assert shares == [number / count for number in range(count)]
    assert await store.built(fragment) is None
