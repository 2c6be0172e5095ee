"""Writes that reach their server long after their clients have given them up, and lost replies."""

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
    """A store, and another one that reaches the same server through a proxy."""

    store: Store
    far: Store
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
async def reached(
    config: SystemConfig, deadline_s: float, pool_size: int
) -> AsyncIterator[Harness]:
    fragment = Fragment(config.name, "late", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    async with proxied(config) as (proxy, through), opened(config) as store:
        far = STORES[config.kind](replace(through, deadline_s=deadline_s, pool_size=pool_size))
        await open_soon(far)
        await store.prepare(fragment)
        yield Harness(store, far, proxy, fragment)
        await far.close()
        await store.drop(fragment)


@pytest.fixture(params=STORES)
def config(request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]) -> SystemConfig:
    return replace(config_of[request.param], namespace="late")


@pytest.fixture
async def hasty(config: SystemConfig) -> AsyncIterator[Harness]:
    """The other store soon gives up."""
    async with reached(config, deadline_s=2.0, pool_size=1) as harness:
        yield harness


async def _is_prepared(harness: Harness, kind: WriteKind, n: int | None, token: str) -> bool:
    """Do the same before, so that what is held back is the execution alone."""
    try:
        await harness.far.write([harness.write(WriteKind.REPLACE, "warm", 0)], token)
        await harness.far.write([harness.write(kind, "warm", None if n is None else 1)], token)
    except (StoreTimeout, StoreUnavailable):
        return False  # its deadline is short, and the machine may be busy
    return True


async def _get_stuck(
    harness: Harness, kind: WriteKind, id_: str, n: int | None, token: str
) -> None:
    """Send a write that does not arrive, until its writer gives up."""
    await eventually(partial(_is_prepared, harness, kind, n, token))
    harness.proxy.hold()
    with pytest.raises((StoreTimeout, StoreUnavailable)):
        await harness.far.write([harness.write(kind, id_, n)], token)
    assert harness.proxy.holds


@pytest.mark.parametrize("kind", [WriteKind.REPLACE, WriteKind.UPDATE, WriteKind.DELETE])
async def test_a_late_write_finds_the_fence(hasty: Harness, kind: WriteKind) -> None:
    n = None if kind is WriteKind.DELETE else 2
    await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 1)])
    await _get_stuck(hasty, kind, "x", n, "lost")
    [before] = await hasty.store.read([Read(hasty.fragment, "x")])
    versions = await hasty.store.fence(hasty.fragment, "x", "lost")
    assert before is not None
    assert versions == before.versions
    await hasty.proxy.release()
    assert await hasty.n("x") == 1


async def test_a_late_creation_finds_the_fence(hasty: Harness) -> None:
    await _get_stuck(hasty, WriteKind.REPLACE, "x", 2, "lost")
    assert await hasty.store.fence(hasty.fragment, "x", "lost") == {}
    await hasty.proxy.release()
    assert await hasty.n("x") is None
    [created] = await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 3)])
    assert created.status is Status.APPLIED
    assert await hasty.n("x") == 3


async def test_a_late_write_without_a_fence_takes_effect(hasty: Harness) -> None:
    await hasty.store.write([hasty.write(WriteKind.CREATE, "x", 1)])
    await _get_stuck(hasty, WriteKind.UPDATE, "x", 2, "lost")
    assert await hasty.n("x") == 1
    await hasty.proxy.release()
    assert await hasty.n("x") == 2


@pytest.mark.parametrize("ids", [IDS[:1], IDS], ids=["one", "several"])
async def test_writes_whose_reply_is_lost_may_have_taken_effect(
    config: SystemConfig, ids: tuple[str, ...]
) -> None:
    async with reached(config, deadline_s=10.0, pool_size=3) as harness:

        async def set_to_zero() -> None:
            await harness.store.write([harness.write(WriteKind.REPLACE, id_, 0) for id_ in ids])

        async def increment_all() -> None:
            await harness.far.write([harness.increment(id_) for id_ in ids])

        async def has_taken_effect() -> bool:
            """Lose a reply; it may be that of a heartbeat."""
            with suppress(StoreTimeout, StoreUnavailable):
                # Once there are connections and statements, the next reply is of the write.
                await increment_all()
            await set_to_zero()
            harness.proxy.loses = True
            try:
                await increment_all()
            except StoreTimeout:
                return 1 in [await harness.n(id_) for id_ in ids]
            except StoreUnavailable:
                done = 1 in [await harness.n(id_) for id_ in ids]
                assert not done, "clients would send it again"
            return False

        await set_to_zero()
        await eventually(has_taken_effect)
