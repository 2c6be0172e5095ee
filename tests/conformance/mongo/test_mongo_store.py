"""What is particular to the MongoDB store; the port's contract is proven by the suite."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from mediator.model.apply import Refused, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import database_prefix, layout_of
from mediator.stores.mongo.outbox.effect import Effect
from mediator.stores.mongo.outbox.entries import REMEMBERED
from mediator.stores.mongo.write.attempt import attempt_of
from mediator.stores.port import (
    RETENTION_S,
    Fragment,
    Ordered,
    Read,
    Reapable,
    Status,
    Store,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)

NAMESPACE = "mongo_test"
INT64_MAX = 2**63 - 1


@dataclass
class SkewedClock:
    """A clock set by hand."""

    seconds: float

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


FIELDS = {
    "n": Field("n", FieldType.INTEGER, index=True),
    "f": Field("f", FieldType.FLOAT, index=True),
    "d": Field("d", FieldType.DECIMAL, index=True),
    "t": Field("t", FieldType.TIMESTAMP),
    "b": Field("b", FieldType.BINARY, index=True),
    "s": Field("s", FieldType.STRING, index=True, group="side"),
    "doc": Field("doc", FieldType.DOCUMENT),
    "l": Field("l", FieldType.LIST, items=FieldType.INTEGER, max_length=3),
    "u": Field("u", FieldType.SET, items=FieldType.STRING, max_length=3),
    "m": Field("m", FieldType.MAP, items=FieldType.INTEGER),
}


@pytest.fixture(scope="module")
def config(mongodb_config: SystemConfig) -> SystemConfig:
    return replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)


@pytest.fixture(scope="module")
async def store(config: SystemConfig) -> AsyncIterator[MongoStore]:
    async with opened(config) as store:
        yield store
        client = store._open_link.session.client
        for name in await client.list_database_names():
            if name.startswith(database_prefix(NAMESPACE)):
                await client.drop_database(name)


@asynccontextmanager
async def opened(config: SystemConfig, clock: Any = None) -> AsyncIterator[MongoStore]:
    store = MongoStore(config, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def fragment(store: MongoStore) -> AsyncIterator[Fragment]:
    names = tuple(name for name in FIELDS if name != "s")
    groups = {"main": names, "side": ("s",)}
    made = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, groups)
    await store.prepare(made)
    yield made
    await store.drop(made)


def writing(fragment: Fragment, kind: WriteKind, id_: str = "x", **what: Any) -> Write:
    operation = what.pop("operation", uuid.uuid4().hex)
    groups = what.pop("groups", ("main", "side"))
    return Write(fragment, id_, kind, operation, groups, **what)


def increment(fragment: Fragment, id_: str = "x", **what: Any) -> Write:
    call = OperatorCall("n", Operator.INC, 1)
    return writing(fragment, WriteKind.UPDATE, id_, operators=(call,), returning=("n",), **what)


async def put(store: Store, fragment: Fragment, id_: str = "x", **values: Any) -> WriteResult:
    return await one(store, writing(fragment, WriteKind.REPLACE, id_, values=values))


async def one(store: Store, write: Write) -> WriteResult:
    (result,) = await store.write([write])
    return result


async def values(store: Store, fragment: Fragment, id_: str = "x") -> dict[str, Any]:
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    return dict(record.values)


async def raw(store: MongoStore, fragment: Fragment, id_: str = "x") -> dict[str, Any]:
    collection = store._open_link.session.collection(layout_of(fragment))
    document = await collection.find_one({"_id": id_})
    assert document is not None
    return document


def test_it_is_ordered_and_reapable(store: MongoStore) -> None:
    assert isinstance(store, Ordered)
    assert isinstance(store, Reapable)


async def test_facts_name_the_server(store: MongoStore) -> None:
    facts = await store.facts()
    assert facts.server in {"mongo-java-server", "MongoDB"}
    assert facts.durability_s is not None
    if facts.server == "mongo-java-server":
        assert facts.durability_s == 1.0  # as the embedded server says of itself


# Operators, natively and computed

integers = st.integers(-(2**63), INT64_MAX) | st.sampled_from(
    [0, 1, -1, 2, -2, INT64_MAX, INT64_MAX - 1, -(2**63), -(2**63) + 1, 2**53 + 1, 3037000500]
)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0) | st.sampled_from(
    [0.0, 1.7976931348623157e308, -1.7976931348623157e308, 1e308, 2.0**62, 2.0**63, 1e22, 5e-324]
)
exact = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-999, max_value=999)
decimals = exact | st.sampled_from([Decimal("1E-30"), Decimal("9" * 34), Decimal("-" + "9" * 34)])
moments = st.datetimes(timezones=st.just(UTC))
keys = st.sampled_from(["", "a", "a.b", "$inc", "$", "%", "%2E", "0", "_id", "\x00", "é", "\ue000"])
words = st.sampled_from(["", "a", "b", "$x", "\ue000", "\U0001f600"])

OPERANDS: dict[str, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "n": (integers, integers),
    "f": (floats, floats),
    "d": (decimals, decimals),
    "t": (moments, moments),
    "l": (st.lists(st.integers(0, 2), max_size=3), st.integers(0, 2)),
    "u": (st.sets(words, max_size=3).map(sorted), words),
    "m": (st.dictionaries(keys, integers, max_size=3), st.dictionaries(keys, integers, max_size=2)),
}


@st.composite
def operations(draw: st.DrawFn) -> tuple[Any, OperatorCall]:
    name = draw(st.sampled_from(sorted(OPERANDS)))
    before, argument = OPERANDS[name]
    able = [op for op in Operator if FIELDS[name].type in APPLICABLE[op]]
    operator = draw(
        st.sampled_from([op for op in able if op not in {Operator.SET, Operator.UNSET}])
    )
    value = draw(st.just(MISSING) | st.none() | before)
    if operator in {Operator.POP, Operator.SHIFT, Operator.NOW}:
        return value, OperatorCall(name, operator, True)
    if operator is Operator.REMOVE and name == "m":
        return value, OperatorCall(name, operator, draw(keys))
    return value, OperatorCall(name, operator, draw(argument))


async def _agree(
    store: MongoStore, fragment: Fragment, cases: list[tuple[Any, OperatorCall]]
) -> None:
    ids = [f"{position}" for position in range(len(cases))]
    await asyncio.gather(
        *(
            put(store, fragment, id_, **({} if value is MISSING else {call.field: value}))
            for id_, (value, call) in zip(ids, cases, strict=True)
        )
    )
    results = await asyncio.gather(
        *(
            one(store, writing(fragment, WriteKind.UPDATE, id_, operators=(call,), returning=()))
            for id_, (_, call) in zip(ids, cases, strict=True)
        )
    )
    for (value, call), result in zip(cases, results, strict=True):
        if call.operator is Operator.NOW:
            assert isinstance(result.values["t"], datetime)
        else:
            status, wanted, failure = _reference(value, call)
            assert (result.status, result.failure) == (status, failure), (value, call)
            assert result.values == wanted, (value, call)


def _reference(value: Any, call: OperatorCall) -> tuple[Status, Any, OperatorFailure | None]:
    try:
        after = apply_operator(FIELDS[call.field], value, call, datetime.now(UTC))
    except Refused as refused:
        return Status.REFUSED, {}, refused.failure
    return Status.APPLIED, {} if after is MISSING else {call.field: after}, None


@pytest.mark.parametrize("seed", range(12))
async def test_operators_do_what_the_reference_does(
    store: MongoStore, fragment: Fragment, seed: int
) -> None:
    await _agree(store, fragment, draw_cases(seed))


def draw_cases(seed: int) -> list[tuple[Any, OperatorCall]]:
    """Draw cases outside the event loop: hypothesis cannot await."""
    drawn: list[tuple[Any, OperatorCall]] = []

    @seeded(seed)
    @settings(max_examples=100, deadline=None, database=None)
    @given(operations())
    def collect(case: tuple[Any, OperatorCall]) -> None:
        drawn.append(case)

    collect()
    return drawn


async def test_usual_operators_take_one_round_trip(fragment: Fragment) -> None:
    layout = layout_of(fragment)
    assert attempt_of(layout, increment(fragment), 1) is not None
    halve = OperatorCall("d", Operator.MUL, Decimal("0.5"))
    write = writing(fragment, WriteKind.UPDATE, operators=(halve,))
    assert attempt_of(layout, write, 1) is None


async def test_what_other_writers_do_meanwhile_is_kept(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    """Two processes, one of them computing, lose no increment of each other."""
    await put(store, fragment, n=0, d=Decimal(0))
    add = OperatorCall("d", Operator.INC, Decimal("0.1"))
    computed = [writing(fragment, WriteKind.UPDATE, operators=(add,)) for _ in range(32)]
    async with opened(config) as other:
        results = await asyncio.gather(
            *(one(store, increment(fragment)) for _ in range(32)),
            *(one(other, write) for write in computed),
        )
    assert {result.status for result in results} == {Status.APPLIED}
    assert len({result.versions["main"] for result in results}) == 64
    assert await values(store, fragment) == {"n": 32, "d": Decimal("3.2")}


async def test_bulk_writes_of_two_processes_are_each_applied_once(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"r{i}" for i in range(20)]
    await store.write([writing(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    async with opened(config) as other:
        answers = await asyncio.gather(
            *(
                writer.write([increment(fragment, id_) for id_ in ids])
                for writer in (store, other) * 4
            )
        )
    for column, id_ in enumerate(ids):
        seen = {answer[column].values["n"] for answer in answers}
        assert seen == set(range(1, 9))
        assert (await values(store, fragment, id_))["n"] == 8


# Clocks


@pytest.mark.parametrize("skew_s", [-3600.0, -0.5, 0.0, 0.5, 3600.0])
async def test_versions_rise_between_skewed_clocks(
    config: SystemConfig, store: MongoStore, fragment: Fragment, skew_s: float
) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=skew_s)
    last = (await put(store, fragment, n=0)).versions["main"]
    async with opened(config, SkewedClock(moment.timestamp())) as other:
        for writer in (other, other, store, other, store, store):
            result = await one(writer, increment(fragment))
            assert result.status is Status.APPLIED
            assert result.versions["main"] > last
            last = result.versions["main"]
        deleted = await one(other, writing(fragment, WriteKind.DELETE))
        made = await one(store, writing(fragment, WriteKind.CREATE, values={}))
    assert made.creation_version > deleted.creation_version > last


# What a record keeps


async def test_a_tombstone_keeps_memory_and_outbox(store: MongoStore, fragment: Fragment) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, operation="made", remember="f"))
    await one(store, writing(fragment, WriteKind.DELETE, operation="gone"))
    document = await raw(store, fragment)
    assert "values" not in document
    assert [entry["op"] for entry in document["_ops"]] == ["made"]
    made, gone = map(Effect.read, document["_pending"])
    assert (made.operation, gone.operation) == ("made", "gone")
    assert gone.kind is WriteKind.DELETE


async def test_memories_of_a_record_are_bounded(store: MongoStore, fragment: Fragment) -> None:
    await put(store, fragment, n=0)
    await store.write([increment(fragment, remember="f") for _ in range(REMEMBERED + 5)])
    document = await raw(store, fragment)
    assert len(document["_ops"]) == REMEMBERED
    assert len(document["_pending"]) == REMEMBERED + 6


async def test_reaping_spares_what_is_young(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    later = datetime.now(UTC).timestamp() + RETENTION_S + 60
    for id_ in ("a", "b", "c"):
        await put(store, fragment, id_, n=1)
    for id_ in ("a", "b"):
        await one(store, writing(fragment, WriteKind.DELETE, id_))
    assert await store.reap(100) == 0
    async with opened(config, SkewedClock(later)) as heir:
        assert await heir.reap(100) == 0, "their changes have not been relayed"
        await store.acknowledge(await store.pending(fragment, ["a", "b"]))
        assert await heir.reap(1) == 1
        assert await heir.reap(100) >= 1
        assert await heir.reap(100) == 0
    assert await values(store, fragment, "c") == {"n": 1}
    assert len((await raw(store, fragment, "c"))["_pending"]) == 1
    assert await store.count(fragment) == 1


# Hostile values


async def test_values_and_ids_are_never_operators(store: MongoStore, fragment: Fragment) -> None:
    document = {"$set": {"n": 1}, "a.b": {"$gt": ""}, "": [{"$where": "1"}], "%2E": 1, "_id": 2}
    for id_ in ('{"$gt": ""}', "$where", "a.b", "é\U0001f600\ue000"):
        await put(store, fragment, id_, doc=document, m={"$inc": 1, "x.y": 2, "": 3})
        assert await values(store, fragment, id_) == {
            "doc": document,
            "m": {"$inc": 1, "x.y": 2, "": 3},
        }
    assert await store.count(fragment) == 4


async def test_what_cannot_be_stored_is_refused(store: MongoStore, fragment: Fragment) -> None:
    for bad in ({"s": "\ud800"}, {"n": 2**63}, {"b": b"x" * (17 * 2**20)}):
        with pytest.raises(StoreRefused):
            await put(store, fragment, **bad)


# Order


async def test_doubles_are_ordered_where_the_stand_in_saturates(
    store: MongoStore, fragment: Fragment
) -> None:
    some = [1e22, 2.0**63, 2.0**62, 1.5, -0.0, 0.0, -(2.0**63), -1e22, 1e300, 1e22]
    for position, value in enumerate(some):
        await put(store, fragment, f"{position}", f=value)
    expected = sorted((value, f"{position}") for position, value in enumerate(some))
    for descending in (False, True):
        ids: list[str] = []
        after: Any = None
        while page := await store.ordered(
            fragment, "f", descending=descending, limit=3, after=after, fields=("f",)
        ):
            ids += [record.id for record in page]
            after = (page[-1].values["f"], page[-1].id)
        assert ids == [id_ for _, id_ in (expected[::-1] if descending else expected)]


async def test_binary_is_ordered_by_its_bytes(store: MongoStore, fragment: Fragment) -> None:
    some = [b"", b"\x00", b"\x00\x00", b"\x01", b"\x7f\xff", b"\x80", b"\xff"]
    await asyncio.gather(*(put(store, fragment, b.hex() or "empty", b=b) for b in some))
    found = await store.ordered(fragment, "b", descending=False, limit=10)
    assert [record.values["b"] for record in found] == some


async def test_only_indexed_fields_are_ordered(store: MongoStore, fragment: Fragment) -> None:
    with pytest.raises(StoreRefused):
        await store.ordered(fragment, "t", descending=False, limit=1)


# Faults


class Cable:
    """A connection to the server, over TCP, that can be cut, and held."""

    def __init__(self, server: str) -> None:
        self._target = server
        self._writers: list[asyncio.StreamWriter] = []
        self.flows = asyncio.Event()
        self.flows.set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await self._reach()
        self._writers += [writer, there_writer]
        await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        path = unquote_plus(self._target)
        if path.startswith("/"):
            return await asyncio.open_unix_connection(path)
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        self._server.close()
        self.flows.set()
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def wired(config: SystemConfig, deadline_s: float) -> AsyncIterator[tuple[MongoStore, Cable]]:
    cable = Cable(urlsplit(config.url).netloc)
    url = f"mongodb://127.0.0.1:{await cable.start()}/?directConnection=true"
    try:
        async with opened(replace(config, url=url, deadline_s=deadline_s)) as store:
            yield store, cable
    finally:
        cable.cut()


async def test_a_connection_cut_during_writes_loses_nothing_acknowledged(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    await put(store, fragment, n=0)
    sent = acknowledged = 0
    enough = asyncio.Event()

    async def client(far: MongoStore) -> None:
        nonlocal sent, acknowledged
        while True:
            sent += 1
            await one(far, increment(fragment))
            acknowledged += 1
            if acknowledged == 40:
                enough.set()

    async with wired(config, 4.0) as (far, cable):
        clients = [asyncio.create_task(client(far)) for _ in range(8)]
        await enough.wait()
        cable.cut()
        ends = await asyncio.gather(*clients, return_exceptions=True)
    assert {type(end) for end in ends} <= {StoreUnavailable, StoreTimeout}
    stored = (await values(store, fragment))["n"]
    assert acknowledged <= stored <= sent


async def test_a_server_that_hangs_is_a_timeout(config: SystemConfig, fragment: Fragment) -> None:
    async with wired(config, 0.5) as (far, cable):
        cable.flows.clear()
        with pytest.raises(StoreTimeout):
            await put(far, fragment, n=1)


async def test_a_url_that_is_none_is_refused(config: SystemConfig) -> None:
    with pytest.raises(StoreRefused):
        await MongoStore(replace(config, url="http://secret:word@nowhere")).open()


async def test_nothing_listens(config: SystemConfig) -> None:
    nowhere = replace(config, url="mongodb://secret:word@127.0.0.1:1", deadline_s=2.0)
    with pytest.raises(StoreUnavailable) as raised:
        await MongoStore(nowhere).open()
    assert "word" not in str(raised.value)


async def test_a_store_that_is_not_open_says_so(config: SystemConfig, fragment: Fragment) -> None:
    closed = MongoStore(config)
    with pytest.raises(StoreUnavailable):
        await closed.read([Read(fragment, "x")])
    await closed.close()


def test_the_reach_of_doubles_is_finite() -> None:
    assert math.isfinite(2.0**62 * 1e150)


async def round_trips_of(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, work: Awaitable[object]
) -> list[str]:
    """Return what a store sends for one piece of work: each round trip by its commands' names."""
    lines = store._open_link.session._connections
    sent = []
    commands = lines.commands

    async def counted(database: str, documents: Sequence[Any]) -> list[dict[str, Any]]:
        sent.append(" ".join(next(iter(document)) for document in documents))
        return await commands(database, documents)

    with monkeypatch.context() as patched:
        patched.setattr(lines, "commands", counted)
        await work
    return sent


async def test_an_intent_is_one_command(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [(fragment, "x")]
    assert await round_trips_of(store, monkeypatch, store.lock(keys, "m")) == ["findAndModify"]
    met = await round_trips_of(store, monkeypatch, store.lock(keys, "other"))
    assert met == ["findAndModify", "find"]
    assert [standing.intent for standing in await store.record_states(keys)] == ["m"]
    left = await round_trips_of(store, monkeypatch, store.unlock(keys, "m", joint=True))
    assert left == ["update"]
    assert [standing.intent for standing in await store.record_states(keys)] == [""]


async def test_intents_on_many_documents_are_one_round_trip_if_all_are_there(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, fragment, "there")
    keys = [(fragment, "there"), *[(fragment, f"x{n}") for n in range(3)]]
    for intent, trips in (("m", 2), ("n", 1)):
        sent = await round_trips_of(store, monkeypatch, store.lock(keys, intent))
        assert sent == ["update find"] * trips
        assert [standing.intent for standing in await store.record_states(keys)] == [intent] * 4
        await store.unlock(keys, intent)


async def test_each_of_many_documents_gets_one_of_many_intents(
    store: MongoStore, fragment: Fragment
) -> None:
    keys = [(fragment, f"x{n}") for n in range(8)]
    for _, id_ in keys[::2]:
        await put(store, fragment, id_)
    for round_ in range(20):
        intents = [f"{round_}.{n}" for n in range(6)]
        summary = await asyncio.gather(*(store.lock(keys, intent) for intent in intents))
        for key, seen in zip(keys, zip(*summary, strict=True), strict=True):
            [intent] = {standing.intent for standing in seen}
            assert intent in intents
            await store.unlock([key], intent)
        assert {standing.intent for standing in await store.record_states(keys)} == {""}


@pytest.mark.parametrize("number", [1, 8])
async def test_writes_under_intents_are_one_round_trip(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ids = [f"x{n}" for n in range(number)]
    for kind, what in (
        (WriteKind.CREATE, {"values": {"n": 1}}),
        (WriteKind.UPDATE, {"values": {"n": 2}, "unset": ("d",)}),
        (WriteKind.UPDATE, {"operators": (OperatorCall("n", Operator.INC, 1),)}),
        (WriteKind.REPLACE, {"values": {"n": 4}, "creation_version": 7}),
        (WriteKind.DELETE, {}),
        (WriteKind.REPLACE, {"values": {"n": 5}, "creation_version": 8}),
    ):
        await store.lock([(fragment, id_) for id_ in ids], "m")
        calls = [writing(fragment, kind, id_, intent="m", **what) for id_ in ids]
        sent = await round_trips_of(store, monkeypatch, store.write(calls))
        assert sent == ["findAndModify" if number == 1 else "find update"]
        stands = await store.record_states([(fragment, id_) for id_ in ids])
        assert [standing.intent for standing in stands] == [""] * number


def replacing_what_is_there(fragment: Fragment, id_: str, creation_version: int | None) -> Write:
    return writing(
        fragment,
        WriteKind.REPLACE,
        id_,
        intent="m",
        values={"n": 4},
        creation_version=creation_version,
        require_present=True,
    )


@pytest.mark.parametrize("creation_version", [None, 7])
@pytest.mark.parametrize("number", [1, 8])
async def test_replacing_what_is_there_under_intents_takes_no_look(
    store: MongoStore,
    fragment: Fragment,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    creation_version: int | None,
) -> None:
    keys = [(fragment, f"x{n}") for n in range(number)]
    before = [await put(store, fragment, id_) for _, id_ in keys]
    await store.lock(keys, "m")
    calls = [replacing_what_is_there(fragment, id_, creation_version) for _, id_ in keys]
    results: list[WriteResult] = []

    async def written() -> None:
        results.extend(await store.write(calls))

    many = "find update" if creation_version is None else "update"
    sent = await round_trips_of(store, monkeypatch, written())
    assert sent == ["findAndModify" if number == 1 else many]
    stands = await store.record_states(keys)
    for result, standing, old in zip(results, stands, before, strict=True):
        assert (result.status, result.created) == (Status.APPLIED, False)
        assert (
            result.creation_version
            == standing.creation_version
            == (creation_version or old.creation_version)
        )
        assert result.versions == standing.versions
        assert result.versions.keys() == fragment.groups.keys()


async def test_of_writes_under_intents_those_that_were_applied_are_told_from_the_others(
    store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"x{n}" for n in range(8)]
    for id_ in ids:
        await put(store, fragment, id_)
    await store.lock([(fragment, id_) for id_ in ids], "m")
    calls = [replacing_what_is_there(fragment, id_, 7) for id_ in ids]
    first = await store.write(calls[:3])
    again = await store.write(calls)
    assert [result.status for result in again] == [Status.LOCKED] * 3 + [Status.APPLIED] * 5
    for id_, result in zip(ids, [*first, *again[3:]], strict=True):
        [standing] = await store.record_states([(fragment, id_)])
        assert (standing.intent, standing.versions) == ("", result.versions)


async def test_writes_under_intents_that_are_too_large_for_one_command(
    store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"x{n}" for n in range(8)]
    await store.lock([(fragment, id_) for id_ in ids], "m")
    large = {"s": "x" * 1_200_000}
    calls = [writing(fragment, WriteKind.CREATE, i, intent="m", values=large) for i in ids]
    assert {result.status for result in await store.write(calls)} == {Status.APPLIED}
    assert {result.status for result in await store.write(calls)} == {Status.LOCKED}
    for id_ in ids:
        assert await values(store, fragment, id_) == large
