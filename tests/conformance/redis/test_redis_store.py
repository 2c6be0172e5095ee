"""What is particular to the store on Redis: its keys, scripts, indexes, outbox and connection."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import redis.asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mediator.model.apply import Refused, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import FieldType, Value
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.redis import RedisStore
from mediator.stores.redis.layout import Layouts
from mediator.stores.redis.write.batches import MOST_WRITES

Server: TypeAlias = Any
"""A client of the driver; its own types do not tell what an asynchronous call brings."""

GROUPS = {"main": ("name", "price", "seen", "tags", "log", "notes"), "hits": ("hits", "score")}
FIELDS = {
    field.name: field
    for field in (
        Field("name", FieldType.STRING, index=True),
        Field("price", FieldType.DECIMAL, index=True),
        Field("seen", FieldType.TIMESTAMP, index=True),
        Field("tags", FieldType.SET, items=FieldType.STRING, max_length=3),
        Field("log", FieldType.LIST, items=FieldType.INTEGER, max_length=3),
        Field("notes", FieldType.MAP, items=FieldType.STRING, max_length=3),
        Field("hits", FieldType.INTEGER, index=True),
        Field("score", FieldType.FLOAT, index=True),
    )
}
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [0, 1, -1, 10**15, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 1 - 2**63]

operations = (f"op{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def config(redis_config: SystemConfig) -> SystemConfig:
    return replace(redis_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)


@pytest.fixture(scope="session")
async def server(config: SystemConfig) -> AsyncIterator[Server]:
    async with redis.asyncio.Redis.from_url(config.url, protocol=2) as client:
        yield client
        keys = [key async for key in client.scan_iter(f"{{{config.namespace}:*", count=1000)]
        if keys:
            await client.delete(*keys)


@pytest.fixture(scope="session")
async def store(config: SystemConfig, server: Server) -> AsyncIterator[RedisStore]:
    opened = RedisStore(config)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def fragment(store: RedisStore) -> AsyncIterator[Fragment]:
    made = Fragment("redis", "db", f"c{uuid4().hex[:8]}", FIELDS, GROUPS)
    await store.prepare(made)
    yield made
    await store.drop(made)


def write(fragment: Fragment, id_: str, kind: WriteKind, **what: Any) -> Write:
    what.setdefault("groups", tuple(fragment.groups))
    what.setdefault("operation", next(operations))
    return Write(fragment, id_, kind, **what)


def put(fragment: Fragment, id_: str, **values: Any) -> Write:
    return write(fragment, id_, WriteKind.REPLACE, values=values)


def apply(fragment: Fragment, id_: str, *calls: OperatorCall, **what: Any) -> Write:
    return write(fragment, id_, WriteKind.UPDATE, operators=calls, **what)


async def only(store: RedisStore, call: Write) -> WriteResult:
    (result,) = await store.write([call])
    return result


async def value_of(store: RedisStore, fragment: Fragment, id_: str, name: str) -> Any:
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    return record.values.get(name, MISSING)


async def keys_of(server: Server, config: SystemConfig, part: str) -> list[bytes]:
    return [key async for key in server.scan_iter(f"{{{config.namespace}:*{part}*", count=1000)]


# Operators: the reference and the scripts agree.


async def agree(
    store: RedisStore, fragment: Fragment, cases: list[tuple[str, Operator, Any, Any]]
) -> None:
    """Apply each case (field, operator, value, argument) in one write to an object of its own."""
    setups, calls = [], []
    for number, (name, operator, value, argument) in enumerate(cases):
        setups.append(put(fragment, f"{number}", **({} if value is MISSING else {name: value})))
        call = OperatorCall(name, operator, argument)
        calls.append(apply(fragment, f"{number}", call, returning=(name,)))
    await store.write(setups)
    results = await store.write(calls)
    for (name, operator, value, argument), result in zip(cases, results, strict=True):
        call = OperatorCall(name, operator, argument)
        expected: Any
        try:
            expected = apply_operator(FIELDS[name], value, call, datetime.now(UTC))
        except Refused as refused:
            expected = refused.failure
        refusal = result.status is Status.REFUSED
        found = result.failure if refusal else result.values.get(name, MISSING)
        assert found == expected, (value, call)


ARITHMETIC = [operator for operator, types in APPLICABLE.items() if FieldType.INTEGER in types]
ARITHMETIC = [o for o in ARITHMETIC if o not in {Operator.SET, Operator.UNSET}]


async def test_integers_are_exact_at_every_edge(store: RedisStore, fragment: Fragment) -> None:
    cases: list[tuple[str, Operator, Any, Any]] = [
        ("hits", operator, value, argument)
        for operator in ARITHMETIC
        for value in [*EDGES, None, MISSING]
        for argument in EDGES
    ]
    await agree(store, fragment, cases)


@MANY
@given(cases=st.lists(st.tuples(st.sampled_from(ARITHMETIC), INT64, INT64), min_size=20))
async def test_integers_are_exact(
    store: RedisStore, fragment: Fragment, cases: list[tuple[Operator, int, int]]
) -> None:
    await agree(store, fragment, [("hits", *case) for case in cases])


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
FLOAT_OPERATORS = st.sampled_from([Operator.INC, Operator.MUL, Operator.MIN, Operator.MAX])


@MANY
@given(cases=st.lists(st.tuples(FLOAT_OPERATORS, st.none() | FLOATS, FLOATS), min_size=10))
@example(cases=[(Operator.MUL, 1.7976931348623157e308, 2.0), (Operator.INC, 0.1, 0.2)])
async def test_floats_are_doubles(store: RedisStore, fragment: Fragment, cases: list[Any]) -> None:
    await agree(store, fragment, [("score", *case) for case in cases])


@MANY
@given(
    cases=st.lists(
        st.tuples(
            st.sampled_from([Operator.MIN, Operator.MAX]),
            st.none() | st.datetimes(timezones=st.just(UTC)),
            st.datetimes(timezones=st.just(UTC)),
        ),
        min_size=10,
    )
)
async def test_timestamps_are_compared_to_the_microsecond(
    store: RedisStore, fragment: Fragment, cases: list[Any]
) -> None:
    await agree(store, fragment, [("seen", *case) for case in cases])


async def test_collections(store: RedisStore, fragment: Fragment) -> None:
    absent: list[Any] = [None, MISSING]
    lists: list[Value] = [[], [1], [1, 2, 1], [3, 1, 2, 1]]
    sets: list[Value] = [[], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"]]
    maps: list[Value] = [{}, {"a": "x"}, {"a": "x", "b": "y", "c": "z"}]
    on_lists = [Operator.PUSH, Operator.PUSH_FRONT, Operator.REMOVE]
    await agree(
        store,
        fragment,
        [("log", operator, value, 1) for operator in on_lists for value in [*lists, *absent]]
        + [("log", o, v, True) for o in (Operator.POP, Operator.SHIFT) for v in [*lists, *absent]]
        + [
            ("tags", operator, value, "a")
            for operator in (Operator.ADD_TO_SET, Operator.REMOVE)
            for value in [*sets, *absent]
        ]
        + [("notes", Operator.REMOVE, value, "a") for value in [*maps, *absent]]
        + [
            ("notes", Operator.PUT, value, argument)
            for value in [*maps, *absent]
            for argument in ({}, {"a": "1"}, {"a": "1", "é": "2"}, dict.fromkeys("abcd", "3"))
        ],
    )


async def test_a_refused_operator_leaves_everything(store: RedisStore, fragment: Fragment) -> None:
    await only(store, put(fragment, "a", hits=2**63 - 1, log=[1], score=1.0))
    (before,) = await store.read([Read(fragment, "a")])
    calls = [
        OperatorCall("log", Operator.PUSH, 2),
        OperatorCall("score", Operator.INC, 1.0),
        OperatorCall("hits", Operator.INC, 1),
    ]
    result = await only(store, apply(fragment, "a", *calls, values={"name": "x"}))
    assert result.status is Status.REFUSED
    assert (await store.read([Read(fragment, "a")])) == [before]


def test_decimal_arithmetic_is_not_offered(store: RedisStore) -> None:
    offered = {operator for operator in Operator if store.supports(operator, FieldType.DECIMAL)}
    assert offered == {Operator.SET, Operator.UNSET}


async def test_an_operator_that_is_not_offered_is_refused(
    store: RedisStore, fragment: Fragment
) -> None:
    call = OperatorCall("price", Operator.INC, Decimal(1))
    with pytest.raises(StoreRefused):
        await store.write([apply(fragment, "a", call)])


# Concurrency and order.


async def test_of_many_conditional_writes_one_wins(store: RedisStore, fragment: Fragment) -> None:
    result = await only(store, put(fragment, "a", hits=0))
    increment = OperatorCall("hits", Operator.INC, 1)
    for round_ in range(1, 6):
        calls = [apply(fragment, "a", increment, expect=result.versions) for _ in range(32)]
        results = await asyncio.gather(*(only(store, call) for call in calls))
        winners = [r for r in results if r.status is Status.APPLIED]
        assert len(winners) == 1
        assert {r.status for r in results} == {Status.APPLIED, Status.CONFLICT}
        assert all(r.versions == winners[0].versions for r in results)
        result = winners[0]
        assert await value_of(store, fragment, "a", "hits") == round_


async def test_many_writes_of_one_object_keep_their_order(
    store: RedisStore, fragment: Fragment
) -> None:
    await only(store, put(fragment, "a", name="start"))
    writes = [
        write(fragment, "a", WriteKind.UPDATE, values={"name": f"{number}"}, returning=("name",))
        for number in range(450)
    ]
    results = await store.write(writes)
    assert [r.values["name"] for r in results] == [f"{number}" for number in range(450)]
    versions = [r.versions["main"] for r in results]
    assert versions == sorted(set(versions))


# Indexes.


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
@MANY
@given(data=st.data())
async def test_an_index_orders_exactly(
    store: RedisStore, fragment: Fragment, name: str, data: st.DataObject
) -> None:
    any_value = st.just(MISSING) | st.none() | INDEXED[name]
    values = data.draw(st.lists(any_value, min_size=5, max_size=15))
    present = {f"é{number}": value for number, value in enumerate(values)}
    await store.write(
        [
            put(fragment, id_, **({} if value is MISSING else {name: value}))
            for id_, value in present.items()
        ]
    )
    everything = {
        record.id: record.values.get(name, MISSING)
        for record in await store.scan(fragment, None, 1000)
    }
    expected = sorted(everything, key=lambda id_: (rank(everything[id_]), id_))
    for descending in (False, True):
        found: list[str] = []
        after = None
        while page := await store.ordered(
            fragment, name, descending=descending, limit=7, after=after
        ):
            found += [record.id for record in page]
            after = (page[-1].values.get(name, MISSING), page[-1].id)
        assert found == (expected[::-1] if descending else expected)


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
            write(fragment, "d", WriteKind.DELETE),
        ]
    )
    order = await store.ordered(fragment, "hits", descending=False, limit=10)
    assert [record.id for record in order] == ["b", "c", "a"]
    for name in INDEXED:
        keys = await keys_of(server, config, f"{fragment.class_name}:i.{name}")
        assert sum([await server.zcard(key) for key in keys]) == 3


async def test_preparing_fills_a_new_index_and_removes_an_old_one(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    without = replace(
        fragment, fields={n: replace(f, index=False) for n, f in fragment.fields.items()}
    )
    await store.prepare(without)
    await store.write([put(without, f"{n}", hits=-n) for n in range(1000)])
    assert await keys_of(server, config, f"{fragment.class_name}:i.") == []
    with pytest.raises(StoreRefused):
        await store.ordered(without, "hits", descending=False, limit=1)
    for _ in range(2):
        await store.prepare(fragment, without)
        found = await store.ordered(fragment, "hits", descending=False, limit=1000, fields=())
        assert [int(record.id) for record in found] == list(range(999, -1, -1))


# Keys.


async def test_all_keys_of_an_object_share_a_tag(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    call = put(fragment, "a", hits=1, tags=["x"], log=[1], notes={"k": "v"})
    await only(store, replace(call, remember="print"))
    keys = await keys_of(server, config, fragment.class_name)
    tags = {key[: key.index(b"}") + 1] for key in keys if b":r:" in key or b":f." in key}
    assert len(tags) == 1
    types = {key.rpartition(b":")[0][-6:]: await server.type(key) for key in keys}
    assert {b"hash", b"set", b"list"} <= set(types.values())
    record = next(key for key in keys if b":r:" in key)
    assert await server.hget(record, "hits") == b"1"


async def test_tombstones_and_memories_expire(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await only(store, put(fragment, "a", hits=1))
    deletion = write(fragment, "a", WriteKind.DELETE, remember="print")
    await only(store, deletion)
    for key in await keys_of(server, config, f"{fragment.class_name}:[or]:"):
        assert await server.pttl(key) >= 24 * 3600 * 1000 - 60_000
    again = await only(store, put(fragment, "a", hits=2))
    assert again.created
    (record,) = await keys_of(server, config, f"{fragment.class_name}:r:")
    assert await server.pttl(record) == -1


async def test_dropping_leaves_nothing_to_find(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    writes = [put(fragment, f"{n}", hits=n, log=[n], tags=["x"]) for n in range(700)]
    writes += [write(fragment, f"{n}", WriteKind.DELETE) for n in range(0, 700, 2)]
    remembered = replace(put(fragment, "r", hits=1), remember="print")
    await store.write([*writes, remembered])
    await store.drop(fragment)
    left = await keys_of(server, config, f".{fragment.class_name}:")
    assert {key.partition(b":")[2].partition(b":")[2][:1] for key in left} <= {b"d"}
    assert all(key.endswith(b":generation") or b":o:" in key for key in left)
    assert await store.recall(fragment, "r", remembered.operation) is None
    assert (await only(store, remembered)).status is Status.APPLIED
    assert await store.count(fragment) == 1


async def test_a_collection_of_a_field_that_is_gone_goes_with_its_record(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await store.write([put(fragment, "a", log=[1]), put(fragment, "b", log=[1])])
    later = replace(fragment, fields={"hits": FIELDS["hits"]}, groups={"hits": ("hits",)})
    await store.write([put(later, "a", hits=1), write(later, "b", WriteKind.DELETE)])
    assert await keys_of(server, config, f"{fragment.class_name}:f.log") == []


# The outbox.


async def outbox(
    server: Server, config: SystemConfig, fragment: Fragment
) -> list[dict[bytes, bytes]]:
    """Return the entries of a class."""
    of_class = f"db/{fragment.class_name}/".encode()
    return [
        fields
        for stream in await keys_of(server, config, "outbox")
        for _, fields in await server.xrange(stream)
        if fields[b"what"].startswith(of_class)
    ]


async def test_every_group_written_has_its_outbox_entry(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    created = await only(store, put(fragment, "a", name="x", log=[1], hits=None))
    call = OperatorCall("log", Operator.PUSH, 22)
    updated = await only(store, apply(fragment, "a", call, unset=("hits",), operation="op/1"))
    refused = await only(store, write(fragment, "a", WriteKind.CREATE))
    assert refused.status is Status.EXISTS
    deleted = await only(store, write(fragment, "a", WriteKind.DELETE))
    entries = await outbox(server, config, fragment)
    assert [f[b"what"].decode().split("/")[2:] for f in entries] == [
        [group, kind] for kind in ("replace", "update", "delete") for group in ("main", "hits")
    ]
    main, hits = entries[2:4]
    assert main[b"what"].decode() == f"db/{fragment.class_name}/main/update"
    assert (main[b"operation"], main[b"object"]) == (b"op/1", b"a")
    assert (main[b"-log"], main[b"+log"]) == (b"L1:1", b"L1:12:22")
    assert (hits[b"-hits"], hits.get(b"+hits")) == (b"n", None)
    summary = [int(fields[b"version"]) for fields in entries]
    assert summary == [r.versions[g] for r in (created, updated, deleted) for g in GROUPS]


async def test_both_scripts_write_the_same_outbox_entry(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    for id_, hits in (("a", 1), ("b", None)):
        await only(store, put(fragment, id_, name="x", hits=hits))
        sum_ = OperatorCall("hits", Operator.INC, 22)
        plain = apply(fragment, id_, sum_, values={"name": "y"})
        await only(store, plain)
        await only(store, put(fragment, id_, name="x", hits=hits))
        await only(store, replace(plain, remember="print", operation="op/2"))
    entries = await outbox(server, config, fragment)
    updates = [f for f in entries if f[b"what"].endswith(b"/update")]
    for f in updates:
        for varying in (b"operation", b"version"):
            f.pop(varying)
    assert len(updates) == 8
    assert updates[0:2] == updates[2:4]
    assert updates[4:6] == updates[6:8]


STORED: list[Any] = [MISSING, None, 0, 7, -3, 10**15, 2**53 + 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("argument", [0, 22, -9, 10**16, None])
async def test_an_update_by_itself_does_what_the_other_script_does(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig, argument: Any
) -> None:
    """One change of one group takes a way of its own; None sets the field, others add to it."""
    for number, hits in enumerate(STORED):
        summary = []
        for way, remember in (("alone", None), ("other", "print")):
            id_ = f"{way}{number}"
            await only(store, put(fragment, id_, **({} if hits is MISSING else {"hits": hits})))
            what: dict[str, Any] = {"groups": ("hits",), "remember": remember}
            if argument is None:
                what["values"] = {"hits": 5}
            else:
                what["operators"] = (OperatorCall("hits", Operator.INC, argument),)
                what["returning"] = ("hits",)
            result = await only(store, write(fragment, id_, WriteKind.UPDATE, **what))
            (record,) = await store.read([Read(fragment, id_)])
            assert record is not None
            if result.status is Status.APPLIED:
                assert dict(record.versions) == dict(result.versions)
                assert record.versions["hits"] > record.versions["main"]
            summary.append((result.status, result.values, result.failure, record.values))
        assert summary[0] == summary[1], hits
    order = await store.ordered(fragment, "hits", descending=False, limit=100)
    found = {way: [r.id[5:] for r in order if r.id.startswith(way)] for way in ("alone", "other")}
    assert found["alone"] == found["other"]
    assert len(found["alone"]) == len(STORED)
    entries = [f for f in await outbox(server, config, fragment) if f[b"what"].endswith(b"/update")]
    of_way: dict[bytes, list[Any]] = {b"alone": [], b"other": []}
    for entry in entries:
        for varying in (b"operation", b"version"):
            entry.pop(varying)
        of_way[entry[b"object"][:5]].append({**entry, b"object": entry[b"object"][5:]})
    key = [sorted(of_way[way], key=lambda entry: entry[b"object"]) for way in of_way]
    assert key[0] == key[1]
    assert key[0]


AHEAD = 4_000_000_000_000_000
KINDS: list[Any] = [5, *STORED, "marked", "nobody", "unborn", "new group", "ahead", "fenced", 12]
FORMS: dict[str, dict[str, Any]] = {
    "sum": {"operators": (OperatorCall("hits", Operator.INC, 22),), "returning": ("hits",)},
    "difference": {"operators": (OperatorCall("hits", Operator.INC, -9),), "returning": ("hits",)},
    "large sum": {"operators": (OperatorCall("hits", Operator.INC, 10**16),)},
    "value": {"values": {"hits": 5}},
    "null": {"values": {"hits": None}},
    "two changes": {
        "operators": (OperatorCall("hits", Operator.INC, 1),),
        "values": {"score": 0.5},
        "returning": ("hits",),
    },
    "two groups": {"values": {"hits": 5}, "groups": tuple(GROUPS)},
}


@pytest.mark.parametrize("token", ["", "unfenced", "fenced"])
@pytest.mark.parametrize("form", FORMS)
async def test_updates_in_one_call_do_what_the_other_script_does(
    opened: Opened, fragment: Fragment, server: Server, config: SystemConfig, form: str, token: str
) -> None:
    """Rows go one way until one takes more, whatever that is, and from there on another one."""
    store = await opened(partitions=1)
    await store.prepare(fragment)
    prefix = Layouts(replace(config, partitions=1)).of(fragment).prefixes[0]
    numbers = range(len(KINDS))
    for special in numbers:
        order = [0, special, 0, special, *numbers[1:]]
        summary: list[Any] = []
        for way, remember in (("quick", None), ("other", "print")):
            ids = [f"{way}.{special}.{number}" for number in numbers]
            await prepare_kinds(store, fragment, server, prefix, ids)
            what = {"groups": ("hits",), "remember": remember, **FORMS[form]}
            results = await store.write(
                [write(fragment, ids[number], WriteKind.UPDATE, **what) for number in order], token
            )
            records = await store.read([Read(fragment, id_) for id_ in ids])
            check_versions(order, results, [r.versions if r else {} for r in records])
            answers = [(r.status, r.values, r.failure, r.intent) for r in results]
            summary.append((answers, [r and r.values for r in records]))
        assert summary[0] == summary[1], KINDS[special]
    listed = await store.ordered(fragment, "hits", descending=False, limit=10_000)
    quick, other = of_ways([(record.id, record.values.get("hits")) for record in listed])
    assert quick == other
    entries = [f for f in await outbox(server, config, fragment) if f[b"what"].endswith(b"/update")]
    quick, other = of_ways([(f[b"object"].decode(), lasting(f)) for f in entries])
    assert quick == other


async def prepare_kinds(
    store: RedisStore, fragment: Fragment, server: Server, prefix: str, ids: list[str]
) -> None:
    """Put a record of each kind."""
    for kind, id_ in zip(KINDS, ids, strict=True):
        if kind == "nobody":
            continue
        hits = 7 if isinstance(kind, str) else kind
        await only(store, put(fragment, id_, **({} if hits is MISSING else {"hits": hits})))
        if kind == "marked":
            await server.hset(f"{prefix}r:{id_}", "!m", "some intent")
        elif kind == "unborn":
            await server.hdel(f"{prefix}r:{id_}", "!b")
        elif kind == "new group":
            await server.hdel(f"{prefix}r:{id_}", "@main")
        elif kind == "ahead":
            await server.hset(f"{prefix}r:{id_}", "@hits", AHEAD)
        elif kind == "fenced":
            await store.fence(fragment, id_, "fenced")


def check_versions(
    order: list[int], results: list[WriteResult], versions: list[Mapping[str, int]]
) -> None:
    """Each write has a version above that of the one before, and the last one is told by reads."""
    for number, last in enumerate(versions):
        own = [r for n, r in zip(order, results, strict=True) if n == number]
        if {r.status for r in own} == {Status.APPLIED}:
            of_hits = [r.versions["hits"] for r in own]
            assert of_hits == sorted({*of_hits})
            assert own[-1].versions == last
            assert (of_hits[0] > AHEAD) is (KINDS[number] == "ahead")


def of_ways(summary: list[tuple[str, Any]]) -> list[list[Any]]:
    """What is told of the ids that begin with each way, in its order."""
    pairs = [(id_.partition("."), what) for id_, what in summary]
    return [[(id_, what) for (w, _, id_), what in pairs if w == way] for way in ("quick", "other")]


def lasting(entry: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What is the same in every entry of an update: the time is there if the version is ahead."""
    varying = {b"object", b"operation", b"version", b"time"}
    return {name: text for name, text in entry.items() if name not in varying}


async def test_updates_in_one_call_trim_the_outbox_and_keep_their_order(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await store.write([put(fragment, f"{n}", hits=n) for n in range(40)])
    async with server.monitor() as monitor:
        what = {"groups": ("hits",), **FORMS["sum"]}
        calls = [write(fragment, f"{n}", WriteKind.UPDATE, **what) for n in range(40)]
        await store.write(calls)
        await server.echo("done")
        trimmed, added = 0, []
        async for summary in monitor.listen():
            words = summary["command"].split(" ")
            if words[0] == "ECHO":
                break
            if words[0] == "XADD":
                trimmed += words[2] == "MAXLEN"
                added.append(words[words.index("operation") + 1])
    assert trimmed == config.partitions
    assert sorted(added) == sorted(call.operation for call in calls)
    for partition in range(config.partitions):
        at = Layouts(config).of(fragment).partition
        own = [call.operation for call in calls if at(call.id) == partition]
        assert [operation for operation in added if operation in own] == own


async def test_an_update_by_itself_is_kept_from_what_is_locked_missing_or_ahead_of_the_clock(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    hit = OperatorCall("hits", Operator.INC, 1)

    def update(id_: str) -> Write:
        return apply(fragment, id_, hit, groups=("hits",), returning=("hits",))

    assert (await only(store, update("nobody"))).status is Status.MISSING
    await only(store, put(fragment, "a", hits=1))
    (key,) = await keys_of(server, config, f"{fragment.class_name}:r:a")
    await server.hset(key, "!m", "some intent")
    assert (await only(store, update("a"))).status is Status.LOCKED
    await server.hdel(key, "!m")
    assert (await only(store, update("a"))).values == {"hits": 2}
    await server.hset(key, "@hits", AHEAD)
    result = await only(store, update("a"))
    assert (result.status, result.versions["hits"]) == (Status.APPLIED, AHEAD + 1)


async def test_a_group_that_came_later_has_no_version(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await only(store, put(fragment, "a", hits=1))
    (key,) = await keys_of(server, config, f"{fragment.class_name}:r:a")
    await server.hdel(key, "@main")
    hit = OperatorCall("hits", Operator.INC, 1)
    result = await only(store, apply(fragment, "a", hit, groups=("hits",), returning=("hits",)))
    assert (result.values, set(result.versions)) == ({"hits": 2}, {"hits"})


# Intents.


async def test_intents_on_many_records_are_few_calls(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    ids = [f"{n}" for n in range(3 * MOST_WRITES)]
    there = dict(
        zip(ids[::2], await store.write([put(fragment, i) for i in ids[::2]]), strict=True)
    )
    keys = [(fragment, id_) for id_ in ids]
    before = await scripts_called(server)
    locked = await store.lock(keys, "m")
    at = Counter(map(Layouts(config).of(fragment).partition, ids))
    most = sum(-(-count // MOST_WRITES) for count in at.values())
    assert await scripts_called(server) - before == most < len(ids)
    for id_, standing in zip(ids, locked, strict=True):
        result = there.get(id_)
        known = (result.creation_version, result.versions) if result else (None, {})
        assert (standing.intent, standing.creation_version, standing.versions) == ("m", *known)
    await store.unlock(keys[1:], "m")
    assert [standing.intent for standing in await store.lock(keys, "n")] == [
        "m",
        *["n"] * (len(ids) - 1),
    ]


async def scripts_called(server: Server) -> int:
    return int((await server.info("commandstats"))["cmdstat_evalsha"]["calls"])


# The connection.


Opened = Callable[..., Any]


@pytest.fixture
async def opened(config: SystemConfig) -> AsyncIterator[Opened]:
    """Opens further stores, and closes them in the end."""
    stores: list[RedisStore] = []

    async def open_(**changes: Any) -> RedisStore:
        stores.append(RedisStore(replace(config, **changes)))
        await stores[-1].open()
        return stores[-1]

    yield open_
    for one in stores:
        await one.close()


def asking(config: SystemConfig, **options: str) -> str:
    """The server's URL with further options of the driver."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{config.url}{'&' if '?' in config.url else '?'}{query}"


async def kill(server: Server, name: str) -> int:
    clients = [c for c in await server.client_list() if c["name"] == name]
    for client in clients:
        await server.execute_command("CLIENT", "KILL", "ID", client["id"])
    return len(clients)


async def asked(server: Server, name: str) -> bool:
    return any(c["name"] == name and c["cmd"] == "evalsha" for c in await server.client_list())


async def test_scripts_the_server_forgot_are_loaded_again(
    store: RedisStore, fragment: Fragment, server: Server
) -> None:
    await only(store, put(fragment, "a", hits=0, log=[]))
    increment = OperatorCall("hits", Operator.INC, 1)
    for _ in range(3):
        await server.script_flush()
        calls = [apply(fragment, id_, increment) for id_ in "aaaaaa"]
        await asyncio.gather(*(only(store, call) for call in calls))
    await server.script_flush()
    assert await value_of(store, fragment, "a", "hits") == 18


async def test_a_lost_connection_is_made_again(
    config: SystemConfig, opened: Opened, fragment: Fragment, server: Server
) -> None:
    store = await opened(url=asking(config, client_name="mortal"))
    await only(store, put(fragment, "a", hits=1))
    assert await kill(server, "mortal") == 1
    assert await value_of(store, fragment, "a", "hits") == 1


async def test_a_write_on_a_connection_that_breaks_is_not_sent_again(
    config: SystemConfig, opened: Opened, fragment: Fragment, server: Server
) -> None:
    store = await opened(url=asking(config, client_name="doomed"))
    await only(store, put(fragment, "a", hits=0))
    await server.execute_command("CLIENT", "PAUSE", 20_000, "WRITE")
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        writing = asyncio.create_task(only(store, call))
        while not await asked(server, "doomed"):
            pass
        await kill(server, "doomed")
        with pytest.raises(StoreTimeout, match="may or may not"):
            await writing
    finally:
        await server.execute_command("CLIENT", "UNPAUSE")
    assert await value_of(store, fragment, "a", "hits") == 0


async def test_the_deadline_bounds_every_call(
    opened: Opened, fragment: Fragment, server: Server
) -> None:
    store = await opened(deadline_s=0.15)
    await only(store, put(fragment, "a", hits=0, log=[]))
    await server.execute_command("CLIENT", "PAUSE", 20_000, "WRITE")
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        results = await asyncio.gather(
            *(only(store, call) for _ in range(3)),
            store.scan(fragment, None, 10),
            store.read([Read(fragment, "a")]),
            return_exceptions=True,
        )
    finally:
        await server.execute_command("CLIENT", "UNPAUSE")
    assert [type(result) for result in results] == [StoreTimeout] * 5
    assert await value_of(store, fragment, "a", "log") == []


async def test_a_caller_who_goes_away_does_not_disturb_the_others(
    store: RedisStore, fragment: Fragment
) -> None:
    await store.write([put(fragment, f"{n}", hits=n) for n in range(20)])
    tasks = [asyncio.create_task(value_of(store, fragment, f"{n}", "hits")) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == list(range(1, 20, 2))
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])


async def test_a_server_that_is_not_there_is_unavailable(config: SystemConfig) -> None:
    store = RedisStore(replace(config, url="redis://:secret@127.0.0.1:1/0", deadline_s=1.0))
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_wrong_password_is_refused_and_not_told(config: SystemConfig) -> None:
    url = asking(config, username="nobody", password="hunter2")
    store = RedisStore(replace(config, url=url))
    with pytest.raises(StoreRefused) as caught:
        await store.open()
    assert "hunter2" not in str(caught.value)
    await store.close()


async def test_a_store_can_be_closed_twice_and_opened_again(
    opened: Opened, fragment: Fragment
) -> None:
    store = await opened()
    await only(store, put(fragment, "a", hits=3))
    await store.close()
    await store.close()
    await store.open()
    assert await value_of(store, fragment, "a", "hits") == 3


async def test_a_full_server_refuses_and_nothing_is_done(
    store: RedisStore, fragment: Fragment, server: Server
) -> None:
    await only(store, put(fragment, "a", hits=1, tags=["x"]))
    (before,) = await store.read([Read(fragment, "a")])
    await server.config_set("maxmemory", 1)
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        with pytest.raises(StoreRefused, match="OOM"):
            await only(store, call)
    finally:
        await server.config_set("maxmemory", 0)
    assert await store.read([Read(fragment, "a")]) == [before]


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
async def test_text_that_is_not_unicode_is_refused(
    store: RedisStore, fragment: Fragment, text: str
) -> None:
    for call in (
        put(fragment, "a", name=text),
        put(fragment, text),
        put(fragment, "a", notes={text: "x"}),
    ):
        with pytest.raises(StoreRefused):
            await only(store, call)
    with pytest.raises(StoreRefused):
        await store.read([Read(fragment, text)])


async def test_more_members_than_a_command_can_carry_are_refused(
    store: RedisStore, fragment: Fragment
) -> None:
    with pytest.raises(StoreRefused):
        await only(store, put(fragment, "a", log=[1] * 1_100_000))
    await store.ping()


async def test_no_calls_need_no_server(config: SystemConfig) -> None:
    store = RedisStore(config)
    assert await store.write([]) == []
    assert await store.read([]) == []


async def test_facts_are_observed(store: RedisStore, server: Server) -> None:
    facts = await store.facts()
    persistent = (await server.config_get("appendonly"))["appendonly"] == "yes"
    fsync = (await server.config_get("appendfsync"))["appendfsync"]
    assert facts.durability_s == (
        {"always": 0.0, "everysec": 1.0}.get(fsync) if persistent else None
    )
    assert facts.server in {"redis", "valkey"}
    assert facts.version[0].isdigit()
    assert facts.replicas == 0


async def test_a_durability_is_asked_for(opened: Opened, server: Server) -> None:
    before = (await server.config_get("appendfsync"))["appendfsync"]
    try:
        await opened(durability="full")
        assert (await server.config_get("appendfsync"))["appendfsync"] == "always"
    finally:
        await server.config_set("appendfsync", before)


async def test_a_server_that_throws_records_away_is_refused(
    config: SystemConfig, server: Server
) -> None:
    store = RedisStore(config)
    await server.config_set("maxmemory-policy", "volatile-lru")
    await server.config_set("maxmemory", "10gb")
    try:
        with pytest.raises(StoreRefused, match="volatile-lru"):
            await store.open()
    finally:
        await server.config_set("maxmemory", 0)
        await server.config_set("maxmemory-policy", "noeviction")
        await store.close()
