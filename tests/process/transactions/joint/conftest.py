"""Objects in two systems, with writes that are committed or half applied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mediator.base.errors import (
    OutcomeUnknown,
)
from mediator.model.operations import (
    Put,
)
from tests.process.service import Service, unique
from tests.process.transactions.joint.pairs import DAY_S, OLD, PAIRS, Doomed, attempt, away
from tests.process.transactions.mortal import make_mortal
from tests.process.transactions.open_writes import all_over, let_overdue


@pytest.fixture(scope="module")
async def pairs(mediator: Service) -> str:
    """A database with a class whose anchor is on PostgreSQL and whose hits are on Redis."""
    database = await mediator.put_schema({"pairs": PAIRS})
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    return database


@pytest.fixture
def mortal(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_mortal(mediator.mediator, patched)
        yield


@pytest.fixture
async def committed(mediator: Service, pairs: str, mortal: None) -> AsyncIterator[str]:
    """The id of an object whose write is committed, and whose coordinator is dead."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    put = Put(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    assert not await attempt(mediator, put, Doomed("commit", after=True))
    yield id_
    await all_over(mediator)


@pytest.fixture
async def half(mediator: Service, pairs: str) -> str:
    """The id of an object whose write has reached one of its systems, and is left there."""
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    put = Put(pairs, "pairs", id_, unique(), values={"title": "put", "hits": 0})
    redis: Any = mediator.mediator.systems.get("redis").store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redis, "write", away)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
        await let_overdue(mediator, in_s=DAY_S)  # whoever meets it is to resolve it
    return id_
