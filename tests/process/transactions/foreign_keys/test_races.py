"""Many clients of two replicas set references, while others delete what they refer to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle

import pytest

from mediator.base.errors import (
    AlreadyExists,
    DanglingReference,
    Locked,
    NotFound,
    StillReferenced,
)
from mediator.model.operations import Create, WriteOperation
from tests.process.service import Service, unique
from tests.process.transactions.foreign_keys.library import (
    ACTIONS,
    WRITES,
    author_of,
    dangling,
    delete,
    error_of,
    exists,
    referring,
)
from tests.process.transactions.open_writes import all_over

AUTHORS = 6
CLIENTS = 12
ROUNDS = 8


EXPECTED = (DanglingReference, StillReferenced, Locked, NotFound, AlreadyExists)


@dataclass
class Crowd:
    """Clients of a library, with what was acknowledged to them."""

    library: str
    authors: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(17))
    created: dict[str, list[str]] = field(default_factory=lambda: {a: [] for a in ACTIONS})

    async def write(self, on: Service, operation: WriteOperation) -> bool:
        error = await error_of(on, operation)
        assert error is None or isinstance(error, EXPECTED), error
        return error is None

    async def refer(self, on: Service, action: str) -> None:
        """Create objects that refer to authors; where there are none, move those of before."""
        own = self.created[action]
        for _ in range(ROUNDS):
            id_, author = unique(), self.chance.choice(self.authors)
            if await self.write(on, referring(self.library, action, id_, author)):
                own.append(id_)
            elif own:
                moved, author = self.chance.choice(own), self.chance.choice(self.authors)
                await self.write(on, WRITES["put"](self.library, action, moved, author))

    async def remove(self, on: Service, author: str) -> None:
        """Delete an author and create it again."""
        for _ in range(ROUNDS):
            if await self.write(on, delete(self.library, author)):
                again = Create(self.library, "authors", author, unique(), values={"name": "n"})
                await self.write(on, again)


async def test_nothing_dangles_and_nothing_acknowledged_is_lost(
    mediator: Service, replica: Service, library: str
) -> None:
    authors = [unique("a") for _ in range(AUTHORS)]
    for author in authors:
        await mediator.create(library, "authors", author, name="n")
    crowd, replicas, actions = Crowd(library, authors), cycle((mediator, replica)), cycle(ACTIONS)
    clients = [crowd.refer(next(replicas), next(actions)) for _ in range(CLIENTS)]
    await asyncio.gather(*clients, *(crowd.remove(next(replicas), each) for each in authors))
    await all_over(mediator)
    for action, ids in crowd.created.items():
        for id_ in ids:
            assert not await dangling(mediator, library, action, id_)
            # Only a cascade may have taken an object whose creation was acknowledged.
            assert action == "cascade" or await exists(mediator, library, action, id_)
    assert any(crowd.created.values())


@pytest.mark.usefixtures("patient")
async def test_a_deletion_succeeds_while_others_go_on_referring(
    mediator: Service, replica: Service, library: str
) -> None:
    """References to other objects of the class do not keep it from ending."""
    busy, author = unique(), unique()
    for id_ in (busy, author):
        await mediator.create(library, "authors", id_, name="n")
    ids = [unique() for _ in range(10)]
    for id_ in ids:
        await mediator.create(library, "nullify", id_, author=author)
    ended = asyncio.Event()

    async def refer(on: Service, make: Callable[[], WriteOperation]) -> None:
        while not ended.is_set():
            assert await error_of(on, make()) is None

    writers = [
        asyncio.create_task(refer(on, lambda: referring(library, "nullify", unique(), busy)))
        for on in (mediator, replica)
    ]
    assert await error_of(mediator, delete(library, author)) is None
    ended.set()
    await asyncio.gather(*writers)
    assert [await author_of(mediator, library, "nullify", id_) for id_ in ids] == [None] * 10
    await all_over(mediator)
