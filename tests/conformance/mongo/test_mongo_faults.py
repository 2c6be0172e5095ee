"""Connection faults of MongoDB, and the round trips that calls take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.mongo import MongoStore
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
from tests.conformance.mongo.records import (
    increment,
    make_write,
    opened,
    put,
    read_values,
    write_one,
)
from tests.conformance.real_stores import open_soon
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied


@asynccontextmanager
async def opened_through_proxy(
    config: SystemConfig, deadline_s: float
) -> AsyncIterator[tuple[MongoStore, Holding]]:
    async with proxied(config) as (proxy, proxy_config):
        store = MongoStore(replace(proxy_config, deadline_s=deadline_s))
        try:
            await open_soon(store)
            yield store, proxy
        finally:
            await store.close()


async def test_a_connection_cut_during_writes_loses_nothing_acknowledged(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    await put(store, fragment, n=0)
    sent = acknowledged = 0
    enough, cut = asyncio.Event(), asyncio.Event()

    async def client(remote: MongoStore) -> None:
        nonlocal sent, acknowledged
        while True:
            sent += 1
            try:
                await write_one(remote, increment(fragment))
            except (StoreTimeout, StoreUnavailable):
                if cut.is_set():
                    raise
                continue  # the deadline is short, and the machine may be busy
            acknowledged += 1
            if acknowledged == 40:
                enough.set()

    async with opened_through_proxy(config, 4.0) as (remote, proxy):
        clients = [asyncio.create_task(client(remote)) for _ in range(8)]
        await enough.wait()
        cut.set()
        proxy.cut()
        outcomes = await asyncio.gather(*clients, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {StoreUnavailable, StoreTimeout}
    stored = (await read_values(store, fragment))["n"]
    assert acknowledged <= stored <= sent


@pytest.mark.parametrize("number", [1, 8])
async def test_writes_to_an_unreachable_server_are_not_applied(
    config: SystemConfig, fragment: Fragment, number: int
) -> None:
    async with opened_through_proxy(config, 2.0) as (remote, proxy):
        proxy.cut()

        async def are_refused() -> bool:
            try:
                await remote.write([increment(fragment, f"x{n}") for n in range(number)])
            except StoreUnavailable:
                return True
            except StoreTimeout:
                return False  # sent before the store noticed that the connection was cut
            raise AssertionError("a write without a connection succeeded")

        await eventually(are_refused)


async def test_writes_that_lose_the_server_in_between_may_have_been_applied(
    config: SystemConfig, store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second write to the record has to wait for the first."""
    await put(store, fragment, n=0)
    async with opened_through_proxy(config, 4.0) as (remote, proxy):
        session = remote.link.session
        modify = session.modify

        async def modify_and_cut(*arguments: Any) -> Any:
            result = await modify(*arguments)
            proxy.cut()
            return result

        monkeypatch.setattr(session, "modify", modify_and_cut)
        replacement = make_write(fragment, WriteKind.REPLACE, values={"n": 9})
        with pytest.raises(StoreTimeout):
            await remote.write([increment(fragment), replacement])
    assert await read_values(store, fragment) == {"n": 1}


async def test_a_server_that_hangs_is_a_timeout(config: SystemConfig, fragment: Fragment) -> None:
    async with opened_through_proxy(config, 0.5) as (remote, proxy):
        proxy.hold()
        with pytest.raises(StoreTimeout):
            await put(remote, fragment, n=1)


async def test_a_constraint_may_take_longer_to_add_than_a_call(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    unique = replace(fragment, unique=(("s",),))
    async with opened(config) as hasty:
        hasty.config = replace(config, deadline_s=1e-6)
        with pytest.raises(StoreTimeout):
            await hasty.ping()
        await hasty.prepare(unique, fragment)
    calls = [
        make_write(unique, WriteKind.CREATE, id_, values={"s": "a"}, claims={"s": "a"})
        for id_ in "xy"
    ]
    results = [await write_one(store, call) for call in calls]
    assert [result.status for result in results] == [Status.APPLIED, Status.TAKEN]


async def test_an_invalid_url_is_refused(config: SystemConfig) -> None:
    with pytest.raises(StoreRefused):
        await MongoStore(replace(config, url="http://secret:word@nowhere")).open()


async def test_an_unreachable_server_fails_without_its_password(config: SystemConfig) -> None:
    unreachable = replace(config, url="mongodb://secret:word@127.0.0.1:1", deadline_s=2.0)
    with pytest.raises(StoreUnavailable) as raised:
        await MongoStore(unreachable).open()
    assert "word" not in str(raised.value)


async def test_a_store_that_is_not_open_is_unavailable(
    config: SystemConfig, fragment: Fragment
) -> None:
    closed = MongoStore(config)
    with pytest.raises(StoreUnavailable):
        await closed.read([Read(fragment, "x")])
    await closed.close()


async def round_trips_of(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, call: Awaitable[object]
) -> list[str]:
    """Return the round trips of a call, each as the names of its commands."""
    connections = store.link.session.connections
    round_trips = []
    commands = connections.commands

    async def record_commands(database: str, documents: Sequence[Any]) -> list[dict[str, Any]]:
        round_trips.append(" ".join(next(iter(document)) for document in documents))
        return await commands(database, documents)

    with monkeypatch.context() as patched:
        patched.setattr(connections, "commands", record_commands)
        await call
    return round_trips


async def test_an_intent_is_one_command(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [(fragment, "x")]
    assert await round_trips_of(store, monkeypatch, store.lock(keys, "m")) == ["findAndModify"]
    commands = await round_trips_of(store, monkeypatch, store.lock(keys, "other"))
    assert commands == ["findAndModify", "find"]
    assert [state.intent for state in await store.record_states(keys)] == ["m"]
    round_trips = await round_trips_of(store, monkeypatch, store.unlock(keys, "m", joint=True))
    assert round_trips == ["update"]
    assert [state.intent for state in await store.record_states(keys)] == [""]


async def test_intents_on_many_documents_are_one_round_trip_if_all_exist(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, fragment, "there")
    keys = [(fragment, "there"), *[(fragment, f"x{n}") for n in range(3)]]
    for intent, trips in (("m", 2), ("n", 1)):
        round_trips = await round_trips_of(store, monkeypatch, store.lock(keys, intent))
        assert round_trips == ["update find"] * trips
        assert [state.intent for state in await store.record_states(keys)] == [intent] * 4
        await store.unlock(keys, intent)


async def test_each_of_many_documents_gets_one_of_many_intents(
    store: MongoStore, fragment: Fragment
) -> None:
    keys = [(fragment, f"x{n}") for n in range(8)]
    for _, id_ in keys[::2]:
        await put(store, fragment, id_)
    for round_ in range(20):
        intents = [f"{round_}.{n}" for n in range(6)]
        state_lists = await asyncio.gather(*(store.lock(keys, intent) for intent in intents))
        for key, states in zip(keys, zip(*state_lists, strict=True), strict=True):
            [intent] = {state.intent for state in states}
            assert intent in intents
            await store.unlock([key], intent)
        assert {state.intent for state in await store.record_states(keys)} == {""}


@pytest.mark.parametrize("number", [1, 8])
async def test_writes_under_intents_are_one_round_trip(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ids = [f"x{n}" for n in range(number)]
    for kind, options in (
        (WriteKind.CREATE, {"values": {"n": 1}}),
        (WriteKind.UPDATE, {"values": {"n": 2}, "unset": ("d",)}),
        (WriteKind.UPDATE, {"operators": (OperatorCall("n", Operator.INC, 1),)}),
        (WriteKind.REPLACE, {"values": {"n": 4}, "creation_version": 7}),
        (WriteKind.DELETE, {}),
        (WriteKind.REPLACE, {"values": {"n": 5}, "creation_version": 8}),
    ):
        await store.lock([(fragment, id_) for id_ in ids], "m")
        calls = [make_write(fragment, kind, id_, intent="m", **options) for id_ in ids]
        round_trips = await round_trips_of(store, monkeypatch, store.write(calls))
        assert round_trips == ["findAndModify" if number == 1 else "find update"]
        states = await store.record_states([(fragment, id_) for id_ in ids])
        assert [state.intent for state in states] == [""] * number


def replacement_of(fragment: Fragment, id_: str, creation_version: int | None) -> Write:
    return make_write(
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
async def test_replacing_locked_records_needs_no_extra_read(
    store: MongoStore,
    fragment: Fragment,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    creation_version: int | None,
) -> None:
    keys = [(fragment, f"x{n}") for n in range(number)]
    before = [await put(store, fragment, id_) for _, id_ in keys]
    await store.lock(keys, "m")
    calls = [replacement_of(fragment, id_, creation_version) for _, id_ in keys]
    results: list[WriteResult] = []

    async def write_all() -> None:
        results.extend(await store.write(calls))

    bulk_commands = "find update" if creation_version is None else "update"
    round_trips = await round_trips_of(store, monkeypatch, write_all())
    assert round_trips == ["findAndModify" if number == 1 else bulk_commands]
    states = await store.record_states(keys)
    for result, state, previous in zip(results, states, before, strict=True):
        assert (result.status, result.created) == (Status.APPLIED, False)
        assert (
            result.creation_version
            == state.creation_version
            == (creation_version or previous.creation_version)
        )
        assert result.versions == state.versions
        assert result.versions.keys() == fragment.groups.keys()


async def test_of_writes_under_intents_those_that_were_applied_are_distinguished(
    store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"x{n}" for n in range(8)]
    for id_ in ids:
        await put(store, fragment, id_)
    await store.lock([(fragment, id_) for id_ in ids], "m")
    calls = [replacement_of(fragment, id_, 7) for id_ in ids]
    first = await store.write(calls[:3])
    repeated = await store.write(calls)
    assert [result.status for result in repeated] == [Status.LOCKED] * 3 + [Status.APPLIED] * 5
    for id_, result in zip(ids, [*first, *repeated[3:]], strict=True):
        [state] = await store.record_states([(fragment, id_)])
        assert (state.intent, state.versions) == ("", result.versions)


async def test_writes_under_intents_that_are_too_large_for_one_command(
    store: MongoStore, fragment: Fragment
) -> None:
    ids = [f"x{n}" for n in range(8)]
    await store.lock([(fragment, id_) for id_ in ids], "m")
    large = {"s": "x" * 1_200_000}
    calls = [make_write(fragment, WriteKind.CREATE, i, intent="m", values=large) for i in ids]
    assert {result.status for result in await store.write(calls)} == {Status.APPLIED}
    assert {result.status for result in await store.write(calls)} == {Status.LOCKED}
    for id_ in ids:
        assert await read_values(store, fragment, id_) == large
