"""Redis's outbox entries: one for each group, the same from both scripts."""

from __future__ import annotations

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import (
    Fragment,
    Status,
    SystemConfig,
    WriteKind,
)
from mediator.stores.redis import RedisStore
from mediator.stores.redis.layout import Layout
from tests.conformance.redis.records import (
    GROUPS,
    Server,
    apply,
    make_write,
    outbox,
    put,
    write_one,
)


async def test_every_group_written_has_its_outbox_entry(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    created = await write_one(store, put(fragment, "a", name="x", log=[1], hits=None))
    call = OperatorCall("log", Operator.PUSH, 22)
    updated = await write_one(store, apply(fragment, "a", call, unset=("hits",), operation="op/1"))
    refused = await write_one(store, make_write(fragment, "a", WriteKind.CREATE))
    assert refused.status is Status.EXISTS
    deleted = await write_one(store, make_write(fragment, "a", WriteKind.DELETE))
    entries = await outbox(server, config, fragment)
    assert [f[b"what"].decode().split("/")[2:] for f in entries] == [
        [group, kind] for kind in ("replace", "update", "delete") for group in ("main", "hits")
    ]
    main, hits = entries[2:4]
    assert main[b"what"].decode() == f"db/{fragment.class_name}/main/update"
    assert (main[b"operation"], main[b"object"]) == (b"op/1", b"a")
    assert (main[b"-log"], main[b"+log"]) == (b"L1:1", b"L1:12:22")
    assert (hits[b"-hits"], hits.get(b"+hits")) == (b"n", None)
    versions = [int(fields[b"version"]) for fields in entries]
    assert versions == [r.versions[g] for r in (created, updated, deleted) for g in GROUPS]


async def test_updates_in_one_call_trim_the_outbox_and_keep_their_order(
    store: RedisStore, fragment: Fragment, server: Server, config: SystemConfig
) -> None:
    await store.write([put(fragment, f"{n}", hits=n) for n in range(40)])
    async with server.monitor() as monitor:
        hit = OperatorCall("hits", Operator.INC, 22)
        calls = [apply(fragment, f"{n}", hit, groups=("hits",)) for n in range(40)]
        await store.write(calls)
        await server.echo("done")
        trim_count, added_operations = 0, []
        async for event in monitor.listen():
            arguments = event["command"].split(" ")
            if arguments[0] == "ECHO":
                break
            if arguments[0] == "XADD":
                trim_count += arguments[2] == "MAXLEN"
                added_operations.append(arguments[arguments.index("operation") + 1])
    assert trim_count == config.partitions
    assert sorted(added_operations) == sorted(call.operation for call in calls)
    for partition in range(config.partitions):
        partition_of = Layout(fragment, config).partition
        operations = [call.operation for call in calls if partition_of(call.id) == partition]
        assert [
            operation for operation in added_operations if operation in operations
        ] == operations
