"""Changes, remembered operations, retention and reported facts of PostgreSQL."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock

import asyncpg
import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    RETENTION_S,
    Fragment,
    StoreError,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import (
    NAMESPACE,
    fragment_of,
    get,
    make_write,
    put,
    table_of,
    write_one,
)

# The outbox and remembered operations


async def test_a_replay_returns_every_type_exactly(store: PostgresStore) -> None:
    values: dict[str, Any] = {
        "a_string": "é'\"\\\x01",
        "a_integer": 2**63 - 1,
        "a_float": 5e-324,
        "a_decimal": Decimal("9" * 34),
        "a_boolean": False,
        "a_timestamp": datetime.max.replace(tzinfo=UTC),
        "a_binary": b"\x00\xff",
        "a_document": {"deep": [1, {"x": None}]},
        "a_reference": "r",
    }
    fields = [Field(name, FieldType(name[2:])) for name in values]
    for type_ in (FieldType.LIST, FieldType.MAP):
        for name, value in list(values.items())[:9]:
            fields.append(Field(f"{type_}_{name}", type_, items=FieldType(name[2:])))
            values[f"{type_}_{name}"] = [value] if type_ is FieldType.LIST else {"k": value}
    fragment = fragment_of(*fields, Field("none", FieldType.STRING))
    await store.prepare(fragment)
    call = make_write(
        fragment, "x", WriteKind.CREATE, values={**values, "none": None}, returning=(), remember="f"
    )
    first, replayed = await write_one(store, call), await write_one(store, call)
    assert first.values == replayed.values == {**values, "none": None}
    for name, value in first.values.items():
        assert type(replayed.values[name]) is type(value)
    assert await get(store, fragment, "x") == {**values, "none": None}
    await store.drop(fragment)


async def test_reaping_removes_tombstones_past_their_retention(
    config: SystemConfig, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(replace(config, namespace=f"{NAMESPACE}_reap"))
    await store.open()
    fragment = fragment_of(Field("n", FieldType.INTEGER))
    await store.prepare(fragment)
    for id_ in ("kept", "gone"):
        await write_one(
            store, make_write(fragment, id_, WriteKind.CREATE, values={"n": 1}, remember="f")
        )
    deletion = await write_one(store, make_write(fragment, "gone", WriteKind.DELETE))
    assert await store.reap(100) == 0
    later_us = await store.time_us() + (RETENTION_S + 60) * 1_000_000
    monkeypatch.setattr(store, "time_us", AsyncMock(return_value=later_us))
    # Two remembered operations and one tombstone; the first round removes at most two.
    assert await store.reap(2) == 2
    assert await store.reap(100) == 1
    assert await store.reap(100) == 0
    assert await get(store, fragment, "kept") == {"n": 1}
    recreated = await write_one(
        store, make_write(fragment, "gone", WriteKind.CREATE, values={"n": 2})
    )
    assert recreated.creation_version > deletion.creation_version
    await store.close()
    await admin.execute(f'DROP SCHEMA "{NAMESPACE}_reap" CASCADE')


# Observed facts


@pytest.mark.parametrize(("durability", "seconds"), [("full", 0.0), ("second", 0.6)])
async def test_durability_is_observed_as_set(
    config: SystemConfig, durability: Any, seconds: float
) -> None:
    store = PostgresStore(replace(config, durability=durability))
    facts = await store.facts()
    await store.close()
    assert facts.server == "PostgreSQL"
    assert int(facts.version.split(".")[0]) >= 14
    delay_ms = float(facts.details["wal_writer_delay_ms"])
    expected = 0.0 if durability == "full" else 3 * delay_ms / 1000
    assert facts.durability_s == (expected if facts.details["fsync"] == "on" else None)
    assert facts.replicas == 0


async def test_a_user_that_may_not_create_the_namespace_is_refused(
    config: SystemConfig, admin: Any
) -> None:
    role = f"portolan_{uuid.uuid4().hex[:8]}"
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret-word'")
    database, port, host = await admin.fetchrow(
        "SELECT current_database(), current_setting('port'),"
        " split_part(current_setting('unix_socket_directories'), ',', 1)"
    )
    url = f"postgresql://{role}:secret-word@/{database}?host={host}&port={port}"
    limited = PostgresStore(replace(config, url=url, namespace=f"{NAMESPACE}_none"))
    with pytest.raises(StoreError) as raised:
        await limited.open()
    assert isinstance(raised.value, StoreRefused)
    assert "secret-word" not in str(raised.value)
    await limited.close()
    await admin.execute(f"DROP ROLE {role}")


async def test_now_is_the_servers_clock_to_the_microsecond(
    store: PostgresStore, admin: Any
) -> None:
    fragment = fragment_of(Field("t", FieldType.TIMESTAMP))
    await store.prepare(fragment)
    await put(store, fragment, "x")
    before = await admin.fetchval("SELECT clock_timestamp()")
    now = OperatorCall("t", Operator.NOW, True)
    result = await write_one(
        store, make_write(fragment, "x", WriteKind.UPDATE, operators=(now,), returning=("t",))
    )
    after = await admin.fetchval("SELECT clock_timestamp()")
    now_stored = result.values["t"]
    assert isinstance(now_stored, datetime)
    assert before <= now_stored <= after
    assert now_stored.utcoffset() == timedelta(0)
    await store.drop(fragment)


@pytest.mark.parametrize("count", [1, 100])
async def test_intents_are_set_in_one_round_trip(
    store: PostgresStore, subject: Fragment, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await store.write([make_write(subject, "r0", WriteKind.REPLACE)])
    calls = []
    for name in ("execute", "fetch", "fetchmany", "fetchrow"):
        method = getattr(asyncpg.Connection, name)

        async def record_call(self: Any, *args: Any, method: Any = method) -> Any:
            calls.append(args)
            return await method(self, *args)

        monkeypatch.setattr(asyncpg.Connection, name, record_call)
    states = await store.lock([(subject, f"r{n}") for n in range(count)], "m")
    assert len(calls) == 1
    assert [state.intent for state in states] == ["m"] * count
    assert states[0].creation_version is not None
    assert {state.creation_version for state in states[1:]} <= {None}


async def test_redo_records_are_removed_with_their_intents(
    store: PostgresStore, admin: Any, subject: Fragment
) -> None:
    """Their column is cleared, not only hidden: the row would carry them for ever."""
    key, query = (subject, "x"), f"SELECT _redo FROM {table_of(subject)} WHERE id = 'x'"
    for kind in (WriteKind.CREATE, WriteKind.UPDATE, WriteKind.REPLACE, WriteKind.DELETE):
        await store.lock([key], "m", "redo")
        assert "redo" in await admin.fetchval(query)
        await write_one(store, make_write(subject, "x", kind, intent="m"))
        assert await admin.fetchval(query) is None, kind
    for joint in (False, True):
        await store.lock([key], "m", "redo")
        await store.unlock([key], "m", joint=joint)
        assert await admin.fetchval(query) is None
    await store.fence(*key, "m")
    await store.lock([key], "m", "redo")
    assert await admin.fetchval(query) is None
