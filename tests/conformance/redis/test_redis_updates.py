"""Updates on Redis: the script for updates alone has the same effects as the general one."""

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
    Opened,
    Server,
    only,
    outbox,
    put,
    write,
)

STORED: list[Any] = [MISSING, None, 0, 7, -3, 10**15, 2**53 + 1, 2**63 - 1, -(2**63)]


AHEAD = 4_000_000_000_000_000
KINDS: list[Any] = [
    5,
    *STORED,
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
async def test_updates_in_one_call_do_what_the_other_script_does(
    opened: Opened, fragment: Fragment, server: Server, config: SystemConfig, form: str, token: str
) -> None:
    """Rows go one way until one takes more, whatever that is, and from there on another one."""
    store = await opened(partitions=1)
    await store.prepare(fragment)
    prefix = Layout(fragment, replace(config, partitions=1)).prefixes[0]
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
    listed = await in_order(store, fragment, "hits", limit=10_000)
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
        if kind == "absent":
            continue
        hits = 7 if isinstance(kind, str) else kind
        await only(store, put(fragment, id_, **({} if hits is MISSING else {"hits": hits})))
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
    """Each write has a version above that of the one before, and reads return the last one."""
    for number, last in enumerate(versions):
        own = [r for n, r in zip(order, results, strict=True) if n == number]
        if {r.status for r in own} == {Status.APPLIED}:
            of_hits = [r.versions["hits"] for r in own]
            assert of_hits == sorted({*of_hits})
            assert own[-1].versions == last
            assert (of_hits[0] > AHEAD) is (KINDS[number] == "ahead")


def of_ways(summary: list[tuple[str, Any]]) -> list[list[Any]]:
    """What is known of the ids that begin with each way, in its order."""
    pairs = [(id_.partition("."), what) for id_, what in summary]
    return [[(id_, what) for (w, _, id_), what in pairs if w == way] for way in ("quick", "other")]


def lasting(entry: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What is the same in every entry of an update: the time is there if the version is ahead."""
    varying = {b"object", b"operation", b"version", b"time"}
    return {name: text for name, text in entry.items() if name not in varying}
