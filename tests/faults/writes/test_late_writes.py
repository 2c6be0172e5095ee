"""Writes that reach their server long after their clients have given them up."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

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


@dataclass
class Harness:
    """A store, and another one whose bytes can be held back on their way to the same server."""

    store: Store
    slow: Store
    holding: Holding
    fragment: Fragment

    def write(self, kind: WriteKind, id_: str, n: int | None = None) -> Write:
        values: Values = {} if n is None else {"n": n}
        return Write(self.fragment, id_, kind, uuid.uuid4().hex, ("main",), values)

    async def n(self, id_: str) -> Any:
        [record] = await self.store.read([Read(self.fragment, id_)])
        return record and record.values["n"]


@pytest.fixture(params=STORES)
async def harness(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[Harness]:
    config = config_of[request.param]
    config = replace(config, namespace="late")
    fragment = Fragment(config.name, "late", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    async with proxied(config) as (holding, through), opened(config) as store:
        slow = STORES[config.kind](replace(through, deadline_s=2.0, pool_size=1))
        await open_soon(slow)
        await store.prepare(fragment)
        yield Harness(store, slow, holding, fragment)
        await slow.close()
        await store.drop(fragment)


async def _is_prepared(harness: Harness, kind: WriteKind, n: int | None, token: str) -> bool:
    """Do the same before, so that what is held back is the execution alone."""
    try:
        await harness.slow.write([harness.write(WriteKind.REPLACE, "warm", 0)], token)
        await harness.slow.write([harness.write(kind, "warm", None if n is None else 1)], token)
    except (StoreTimeout, StoreUnavailable):
        return False  # its deadline is short, and the machine may be busy
    return True


async def _get_stuck(
    harness: Harness, kind: WriteKind, id_: str, n: int | None, token: str
) -> None:
    """Send a write that does not arrive, until its writer gives up."""
    await eventually(partial(_is_prepared, harness, kind, n, token))
    harness.holding.hold()
    with pytest.raises((StoreTimeout, StoreUnavailable)):
        await harness.slow.write([harness.write(kind, id_, n)], token)
    assert harness.holding.holds


@pytest.mark.parametrize("kind", [WriteKind.REPLACE, WriteKind.UPDATE, WriteKind.DELETE])
async def test_a_late_write_finds_the_fence(harness: Harness, kind: WriteKind) -> None:
    n = None if kind is WriteKind.DELETE else 2
    await harness.store.write([harness.write(WriteKind.CREATE, "x", 1)])
    await _get_stuck(harness, kind, "x", n, "lost")
    [before] = await harness.store.read([Read(harness.fragment, "x")])
    versions = await harness.store.fence(harness.fragment, "x", "lost")
    assert before is not None
    assert versions == before.versions
    await harness.holding.release()
    assert await harness.n("x") == 1


async def test_a_late_creation_finds_the_fence(harness: Harness) -> None:
    await _get_stuck(harness, WriteKind.REPLACE, "x", 2, "lost")
    assert await harness.store.fence(harness.fragment, "x", "lost") == {}
    await harness.holding.release()
    assert await harness.n("x") is None
    [created] = await harness.store.write([harness.write(WriteKind.CREATE, "x", 3)])
    assert created.status is Status.APPLIED
    assert await harness.n("x") == 3


async def test_a_late_write_without_a_fence_takes_effect(harness: Harness) -> None:
    await harness.store.write([harness.write(WriteKind.CREATE, "x", 1)])
    await _get_stuck(harness, WriteKind.UPDATE, "x", 2, "lost")
    assert await harness.n("x") == 1
    await harness.holding.release()
    assert await harness.n("x") == 2
