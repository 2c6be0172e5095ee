"""Fixtures: objects on two systems, with writes that are committed or half applied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mediator.base.errors import OutcomeUnknown
from mediator.model.operations import Put, Update, WriteOperation
from mediator.transactions.log import TransactionEntry
from tests.process.service import Service, unique
from tests.process.transactions.crashable import make_crashable
from tests.process.transactions.joint.pairs import (
    DAY_S,
    OLD,
    PAIRS,
    CrashAt,
    attempt,
    unavailable,
    write_of,
)
from tests.process.transactions.open_writes import all_over, let_overdue


@pytest.fixture(autouse=True)
def _patient(patient: None) -> None:
    """No writer gives up unless a test makes it."""


@pytest.fixture(scope="module")
async def pairs(mediator: Service) -> str:
    """A database with a class whose anchor is on PostgreSQL and whose hits are on Redis."""
    database = await mediator.put_schema({"pairs": PAIRS})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture
def crashable(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_crashable(mediator.mediator, patched)
        yield


@pytest.fixture
async def committed(mediator: Service, pairs: str, crashable: None) -> AsyncIterator[str]:
    """The id of an object whose write is committed, and whose coordinator was killed."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    update = Update(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    assert not await attempt(mediator, update, CrashAt("commit", after=True))
    yield id_
    await all_over(mediator)


@pytest.fixture
async def put(mediator: Service, pairs: str) -> WriteOperation:
    """A put of an existing object, while no other write is open."""
    operation = write_of("put", pairs, unique())
    await mediator.create(pairs, "pairs", operation.id, **OLD)
    await all_over(mediator)
    return operation


@pytest.fixture
async def half(mediator: Service, pairs: str) -> str:
    """The id of an object whose write has reached only one of its systems."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    put = Put(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    redis: Any = mediator.mediator.systems.get("redis").store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redis, "write", unavailable)
        # A failed write is left to recovery at once; its next round would finish the write.
        patched.setattr(mediator.mediator.transactions.log, "take", _take_nothing)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
        await let_overdue(mediator, in_s=DAY_S)  # the first write that meets it must resolve it
    return id_


async def _take_nothing(*_: object) -> list[TransactionEntry]:
    return []
