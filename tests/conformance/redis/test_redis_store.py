"""Keys on Redis, the order of many writes, and intents on many records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mediator.base.clock import SystemClock
from mediator.operations.intents import IntentStore
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import (
    Fragment,
    Status,
    SystemConfig,
    WriteKind,
)
from mediator.stores.redis import RedisStore
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.write.batches import MAX_WRITES
from mediator.stores.systems import Systems
from tests.conformance.redis.records import (
    FIELDS,
    Server,
    keys_of,
    make_write,
    put,
    write_one,
)


async def test_all_keys_of_an_object_share_a_tag(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    call = put(fragment, "a", hits=1, tags=["x"], log=[1], notes={"k": "v"})
    await write_one(store, replace(call, remember="print"))
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
    await write_one(store, put(fragment, "a", hits=1))
    deletion = make_write(fragment, "a", WriteKind.DELETE, remember="print")
    await write_one(store, deletion)
    for key in await keys_of(server, config, f"{fragment.class_name}:[or]:"):
        assert await server.pttl(key) >= 24 * 3600 * 1000 - 60_000
    recreated = await write_one(store, put(fragment, "a", hits=2))
    assert recreated.created
    (record,) = await keys_of(server, config, f"{fragment.class_name}:r:")
    assert await server.pttl(record) == -1


async def test_dropping_leaves_nothing_to_find(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    writes = [put(fragment, f"{n}", hits=n, log=[n], tags=["x"]) for n in range(700)]
    writes += [make_write(fragment, f"{n}", WriteKind.DELETE) for n in range(0, 700, 2)]
    remembered_write = replace(put(fragment, "r", hits=1), remember="print")
    await store.write([*writes, remembered_write])
    await store.drop(fragment)
    remaining = await keys_of(server, config, f".{fragment.class_name}:")
    assert {key.partition(b":")[2].partition(b":")[2][:1] for key in remaining} <= {b"d"}
    assert all(key.endswith(b":generation") or b":o:" in key for key in remaining)
    assert await store.recall(fragment, "r", remembered_write.operation) is None
    assert (await write_one(store, remembered_write)).status is Status.APPLIED
    assert await store.count(fragment) == 1


async def test_a_collection_of_a_dropped_field_is_removed_with_its_record(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await store.write([put(fragment, "a", log=[1]), put(fragment, "b", log=[1])])
    later = replace(fragment, fields={"hits": FIELDS["hits"]}, groups={"hits": ("hits",)})
    await store.write([put(later, "a", hits=1), make_write(later, "b", WriteKind.DELETE)])
    assert await keys_of(server, config, f"{fragment.class_name}:f.log") == []


async def test_intents_on_many_records_take_few_calls(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    ids = [f"{n}" for n in range(3 * MAX_WRITES)]
    stored = dict(
        zip(ids[::2], await store.write([put(fragment, i) for i in ids[::2]]), strict=True)
    )
    keys = [(fragment, id_) for id_ in ids]
    before = await script_calls(server)
    locked = await store.lock(keys, "m")
    counts = Counter(map(Layout(fragment, config).partition, ids))
    script_count = sum(-(-count // MAX_WRITES) for count in counts.values())
    assert await script_calls(server) - before == script_count < len(ids)
    for id_, state in zip(ids, locked, strict=True):
        result = stored.get(id_)
        expected = (result.creation_version, result.versions) if result else (None, {})
        assert (state.intent, state.creation_version, state.versions) == ("m", *expected)
    await store.unlock(keys[1:], "m")
    assert [state.intent for state in await store.lock(keys, "n")] == [
        "m",
        *["n"] * (len(ids) - 1),
    ]


async def test_a_record_with_only_an_intent_leaves_no_key(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    keys = [(fragment, "a"), (fragment, "b")]
    for joint in (False, True):
        await store.lock(keys, "m", "redo")
        assert await keys_of(server, config, f"{fragment.class_name}:r:")
        await store.unlock(keys, "m", joint=joint)
        for pattern in (":r:", ":tombstones"):
            assert await keys_of(server, config, f"{fragment.class_name}{pattern}") == []


async def test_an_intent_on_an_absent_record_does_not_expire(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    """A system that is away for longer than tombstones are kept can still write afterwards."""
    await write_one(store, put(fragment, "deleted", hits=1))
    await write_one(store, make_write(fragment, "deleted", WriteKind.DELETE))
    keys = [(fragment, "deleted"), (fragment, "new")]
    await store.lock(keys, "m", "redo")
    records = await keys_of(server, config, f"{fragment.class_name}:r:")
    assert [await server.pttl(key) for key in records] == [-1, -1]
    # Deleting another record drops expired tombstones from their index.
    await write_one(store, put(fragment, "other", hits=1))
    await write_one(store, make_write(fragment, "other", WriteKind.DELETE))
    await store.unlock(keys, "m")
    [tombstone] = [key for key in records if key.endswith(b":deleted")]
    assert await server.pttl(tombstone) >= 24 * 3600 * 1000 - 60_000
    await store.lock(keys, "m")
    await store.drop(fragment)
    assert await keys_of(server, config, f"{fragment.class_name}:r:") == []


async def test_intents_of_renamed_classes_carry_redo_records(
    store: RedisStore, fragment: Fragment
) -> None:
    systems = Systems()
    systems.add(GuardedStore(store, lambda _: None, SystemClock()))
    intents, keys = IntentStore(systems), [(replace(fragment, stored_names={"name": "title"}), "a")]
    for lock in (intents.lock, intents.lock_each):
        await lock(keys, "m", "redo")
        assert [state.redo for state in await intents.record_states(keys, redo=True)] == ["redo"]
        await intents.unlock(keys, "m")


async def script_calls(server: Server) -> int:
    return int((await server.info("commandstats"))["cmdstat_evalsha"]["calls"])
