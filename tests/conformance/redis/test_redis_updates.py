"""Updates on Redis: the script for updates has the same effects as the general script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import MISSING
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    SystemConfig,
    WriteKind,
    WriteResult,
)
from mediator.stores.redis import RedisStore
from mediator.stores.redis.layout import Layout
from tests.conformance.in_order import in_order
from tests.conformance.redis.records import (
    GROUPS,
    Server,
    StoreOpener,
    make_write,
    outbox,
    put,
    write_one,
)

STORED_VALUES: list[Any] = [MISSING, None, 0, 7, -3, 10**15, 2**53 + 1, 2**63 - 1, -(2**63)]


AHEAD = 4_000_000_000_000_000
KINDS: list[Any] = [
    5,
    *STORED_VALUES,
    "locked",
    "absent",
    "uncreated",
    "new group",
    "ahead",
    "fenced",
    12,
]
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
    "two groups": {"values": {"hits": 5, "name": "y"}, "groups": tuple(GROUPS)},
}


@pytest.mark.parametrize("token", ["", "unfenced", "fenced"])
@pytest.mark.parametrize("form", FORMS)
async def test_updates_in_one_call_have_the_effects_of_the_general_script(
    opened: StoreOpener,
    fragment: Fragment,
    server: Server,
    config: SystemConfig,
    form: str,
    token: str,
) -> None:
    """From the first row that needs the general script on, all rows of a call take it."""
    store = await opened(partitions=1)
    await store.prepare(fragment)
    prefix = Layout(fragment, replace(config, partitions=1)).prefixes[0]
    numbers = range(len(KINDS))
    for special in numbers:
        order = [0, special, 0, special, *numbers[1:]]
        runs: list[Any] = []
        for path, remember in (("quick", None), ("other", "print")):
            ids = [f"{path}.{special}.{number}" for number in numbers]
            await prepare_kinds(store, fragment, server, prefix, ids)
            options = {"groups": ("hits",), "remember": remember, **FORMS[form]}
            results = await store.write(
                [
                    make_write(fragment, ids[number], WriteKind.UPDATE, **options)
                    for number in order
                ],
                token,
            )
            records = await store.read([Read(fragment, id_) for id_ in ids])
            check_versions(order, results, [r.versions if r else {} for r in records])
            outcomes = [(r.status, r.values, r.failure, r.intent) for r in results]
            runs.append((outcomes, [r and r.values for r in records]))
        assert runs[0] == runs[1], KINDS[special]
    page = await in_order(store, fragment, "hits", limit=10_000)
    quick, other = split_by_path([(record.id, record.values.get("hits")) for record in page])
    assert quick == other
    entries = [f for f in await outbox(server, config, fragment) if f[b"what"].endswith(b"/update")]
    quick, other = split_by_path([(f[b"object"].decode(), constant_fields(f)) for f in entries])
    assert quick == other


async def prepare_kinds(
    store: RedisStore, fragment: Fragment, server: Server, prefix: str, ids: list[str]
) -> None:
    """Put a record of each kind."""
    for kind, id_ in zip(KINDS, ids, strict=True):
        if kind == "absent":
            continue
        hits = 7 if isinstance(kind, str) else kind
        await write_one(store, put(fragment, id_, **({} if hits is MISSING else {"hits": hits})))
        if kind == "locked":
            await server.hset(f"{prefix}r:{id_}", "!m", "some intent")
        elif kind == "uncreated":
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
    """Check that each write raises the version, and that reads return the last version."""
    for number, last in enumerate(versions):
        record_results = [r for n, r in zip(order, results, strict=True) if n == number]
        if {r.status for r in record_results} == {Status.APPLIED}:
            hits_versions = [r.versions["hits"] for r in record_results]
            assert hits_versions == sorted({*hits_versions})
            assert record_results[-1].versions == last
            assert (hits_versions[0] > AHEAD) is (KINDS[number] == "ahead")


def split_by_path(entries: list[tuple[str, Any]]) -> list[list[Any]]:
    """Return the entries of each path, whose name is the prefix of their ids, in order."""
    pairs = [(id_.partition("."), value) for id_, value in entries]
    return [
        [(id_, value) for (p, _, id_), value in pairs if p == path] for path in ("quick", "other")
    ]


def constant_fields(entry: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the fields that all entries share; the time is set if the version is ahead."""
    varying = {b"object", b"operation", b"version", b"time"}
    return {name: text for name, text in entry.items() if name not in varying}
