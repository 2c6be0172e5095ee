"""Writes that reach the server long after their clients gave up, and lost replies."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    Store,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from tests.conformance.real_stores import STORES, open_soon, opened
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied

FIELDS = {"n": Field("n", FieldType.INTEGER)}
GROUPS = {"main": ("n",)}
IDS = ("x", "y", "z")


@dataclass
class Harness:
    """A store, and a second one that connects to the same server through a proxy."""

    store: Store
    proxied_store: Store
    proxy: Holding
    fragment: Fragment

    def write(self, kind: WriteKind, id_: str, n: int | None = None) -> Write:
        values: Values = {} if n is None else {"n": n}
        return Write(self.fragment, id_, kind, uuid.uuid4().hex, ("main",), values)

    def increment(self, id_: str) -> Write:
        call = OperatorCall("n", Operator.INC, 1)
        return replace(self.write(WriteKind.UPDATE, id_), operators=(call,))

    async def n(self, id_: str) -> Any:
        [record] = await self.store.read([Read(self.fragment, id_)])
        return record and record.values["n"]


@asynccontextmanager
async def harness_on(
    config: SystemConfig, deadline_s: float, pool_size: int
) -> AsyncIterator[Harness]:
    fragment = Fragment(config.name, "late", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    async with proxied(config) as (proxy, proxied_config), opened(config) as store:
        proxied_store = STORES[config.kind](
            replace(proxied_config, deadline_s=deadline_s, pool_size=pool_size)
        )
        await open_soon(proxied_store)
        await store.prepare(fragment)
        yield Harness(store, proxied_store, proxy, fragment)
        await proxied_store.close()
        await store.drop(fragment)


@pytest.fixture(params=STORES)
def config(request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]) -> SystemConfig:
    return replace(config_of[request.param], namespace="late")


@pytest.fixture
async def hasty(config: SystemConfig) -> AsyncIterator[Harness]:
    """A harness whose proxied store has a short deadline."""
    async with harness_on(config, deadline_s=2.0, pool_size=1) as harness:
        yield harness


async def _is_prepared(harness: Harness, kind: WriteKind, n: int | None, token: str) -> bool:
    """Prepare the same statements first, so that only their execution is held back."""
    try:
        await harness.proxied_store.write([harness.write(WriteKind.REPLACE, "warm", 0)], token)
        await harness.proxied_store.write(
            [harness.write(kind, "warm", None if n is None else 1)], token
        )
    except (StoreTimeout, StoreUnavailable):
        return False  # its deadline is short, and the machine can be busy
    return True


async def _block_write(
    harness: Harness, kind: WriteKind, id_: str, n: int | None, token: str
) -> None:
    """Send a write that the proxy holds, until the writer gives up."""
    await eventually(partial(_is_prepared, harness, kind, n, token))
    harness.proxy.hold()
    with pytest.raises((StoreTimeout, StoreUnavailable)):
        await harness.proxied_store.write([harness.write(kind, id_, n)], token)
    assert harness.proxy.holds


@pytest.mark.parametrize("kind", [WriteKind.REPLACE, WriteKind.UPDATE, WriteKind.DELETE])
async def test_a_late_write_is_fenced(hasty: Harness, kind: WriteKind) -> None:
    n = None if kind is WriteKind.DELETE else 2
    await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 1)])
    await _block_write(hasty, kind, "x", n, "lost")
    [record] = await hasty.store.read([Read(hasty.fragment, "x")])
    versions = await hasty.store.fence(hasty.fragment, "x", "lost")
    assert record is not None
    assert versions == record.versions
    await hasty.proxy.release()
    assert await hasty.n("x") == 1


async def test_a_late_creation_is_fenced(hasty: Harness) -> None:
    await _block_write(hasty, WriteKind.REPLACE, "x", 2, "lost")
    assert await hasty.store.fence(hasty.fragment, "x", "lost") == {}
    await hasty.proxy.release()
    assert await hasty.n("x") is None
    [result] = await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 3)])
    assert result.status is Status.APPLIED
    assert await hasty.n("x") == 3


async def test_a_late_write_without_a_fence_takes_effect(hasty: Harness) -> None:
    await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 1)])
    await _block_write(hasty, WriteKind.UPDATE, "x", 2, "lost")
    assert await hasty.n("x") == 1
    await hasty.proxy.release()
    assert await hasty.n("x") == 2


@pytest.mark.parametrize("ids", [IDS[:1], IDS], ids=["one", "several"])
async def test_writes_whose_reply_is_lost_may_have_taken_effect(
    config: SystemConfig, ids: tuple[str, ...]
) -> None:
    async with harness_on(config, deadline_s=10.0, pool_size=3) as harness:

        async def set_to_zero() -> None:
            await harness.store.write([harness.write(WriteKind.REPLACE, id_, 0) for id_ in ids])

        async def increment_all() -> None:
            await harness.proxied_store.write([harness.increment(id_) for id_ in ids])

        async def has_taken_effect() -> bool:
            """Lose a reply, possibly that of a heartbeat."""
            with suppress(StoreTimeout, StoreUnavailable):
                # With open connections and prepared statements, the next reply is the write's.
                await increment_all()
            await set_to_zero()
            harness.proxy.loses = True
            try:
                await increment_all()
            except StoreTimeout:
                return 1 in [await harness.n(id_) for id_ in ids]
            except StoreUnavailable:
                has_applied = 1 in [await harness.n(id_) for id_ in ids]
                assert not has_applied, "clients would retry"
            return False

        await set_to_zero()
        await eventually(has_taken_effect)
