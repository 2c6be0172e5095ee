"""Writes that take effect while their replies are lost, together with the connections."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Read,
    Store,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from tests.conformance.real_stores import STORES, opened
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied

FIELDS = {"n": Field("n", FieldType.INTEGER)}
IDS = ("x", "y", "z")


@dataclass
class Counters:
    """Counters in a store, and another store whose replies can be lost."""

    store: Store
    far: Store
    proxy: Holding
    fragment: Fragment

    def reset(self) -> list[Write]:
        return [self._write(id_, WriteKind.REPLACE, values={"n": 0}) for id_ in IDS]

    def increments(self, ids: tuple[str, ...]) -> list[Write]:
        call = OperatorCall("n", Operator.INC, 1)
        return [self._write(id_, WriteKind.UPDATE, operators=(call,)) for id_ in ids]

    async def values(self) -> list[object]:
        records = await self.store.read([Read(self.fragment, id_) for id_ in IDS])
        return [record and record.values["n"] for record in records]

    def _write(self, id_: str, kind: WriteKind, **what: object) -> Write:
        return Write(self.fragment, id_, kind, uuid.uuid4().hex, ("main",), **what)  # type: ignore[arg-type]


@pytest.fixture(params=STORES)
async def counters(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[Counters]:
    config = replace(config_of[request.param], namespace="lost_replies", deadline_s=10.0)
    fragment = Fragment(config.name, "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, {"main": ("n",)})
    async with (
        proxied(config) as (proxy, through),
        opened(config) as store,
        opened(replace(through, pool_size=3)) as far,
    ):
        await store.prepare(fragment)
        yield Counters(store, far, proxy, fragment)
        await store.drop(fragment)


@pytest.mark.parametrize("ids", [IDS[:1], IDS], ids=["one", "several"])
async def test_writes_whose_reply_is_lost_may_have_taken_effect(
    counters: Counters, ids: tuple[str, ...]
) -> None:
    await counters.store.write(counters.reset())

    async def has_taken_effect() -> bool:
        """Lose a reply; it may be that of a heartbeat."""
        with suppress(StoreTimeout, StoreUnavailable):
            # Once connections and prepared statements are there, the next reply is of the write.
            await counters.far.write(counters.increments(ids))
        await counters.store.write(counters.reset())
        counters.proxy.loses = True
        try:
            await counters.far.write(counters.increments(ids))
        except StoreTimeout:
            return 1 in await counters.values()
        except StoreUnavailable:
            assert 1 not in await counters.values(), "clients would send it again"
        return False

    await eventually(has_taken_effect)
