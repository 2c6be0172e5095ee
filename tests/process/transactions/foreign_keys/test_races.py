"""Many clients of two replicas set references, while others delete the targets."""

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
    create_reference,
    delete,
    error_of,
    exists,
    is_dangling,
)
from tests.process.transactions.open_writes import all_over

AUTHORS = 6
CLIENTS = 12
ROUNDS = 8


EXPECTED = (DanglingReference, StillReferenced, Locked, NotFound, AlreadyExists)


@dataclass
class Crowd:
    """Clients of a library, and the creations acknowledged to them."""

    library: str
    authors: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(17))
    created: dict[str, list[str]] = field(default_factory=lambda: {a: [] for a in ACTIONS})

    async def write(self, replica: Service, operation: WriteOperation) -> bool:
        error = await error_of(replica, operation)
        assert error is None or isinstance(error, EXPECTED), error
        return error is None

    async def refer(self, replica: Service, action: str) -> None:
        """Create objects that refer to authors; if refused, redirect an earlier object."""
        ids = self.created[action]
        for _ in range(ROUNDS):
            id_, author = unique(), self.chance.choice(self.authors)
            if await self.write(replica, create_reference(self.library, action, id_, author)):
                ids.append(id_)
            elif ids:
                existing_id, author = self.chance.choice(ids), self.chance.choice(self.authors)
                await self.write(replica, WRITES["put"](self.library, action, existing_id, author))

    async def remove(self, replica: Service, author: str) -> None:
        """Delete an author and create it again."""
        for _ in range(ROUNDS):
            if await self.write(replica, delete(self.library, author)):
                creation = Create(self.library, "authors", author, unique(), values={"name": "n"})
                await self.write(replica, creation)


async def test_nothing_dangles_and_nothing_acknowledged_is_lost(
    mediator: Service, replica: Service, library: str
) -> None:
    authors = [unique("a") for _ in range(AUTHORS)]
    for author in authors:
        await mediator.create(library, "authors", author, name="n")
    crowd, replicas, actions = Crowd(library, authors), cycle((mediator, replica)), cycle(ACTIONS)
    clients = [crowd.refer(next(replicas), next(actions)) for _ in range(CLIENTS)]
    await asyncio.gather(*clients, *(crowd.remove(next(replicas), author) for author in authors))
    await all_over(mediator)
    for action, ids in crowd.created.items():
        for id_ in ids:
            assert not await is_dangling(mediator, library, action, id_)
            # Only a cascade can have deleted an object whose creation was acknowledged.
            assert action == "cascade" or await exists(mediator, library, action, id_)
    assert any(crowd.created.values())


@pytest.mark.usefixtures("patient")
async def test_a_deletion_succeeds_while_others_keep_referring(
    mediator: Service, replica: Service, library: str
) -> None:
    """References to other objects of the class do not prevent its end."""
    busy, author = unique(), unique()
    for id_ in (busy, author):
        await mediator.create(library, "authors", id_, name="n")
    ids = [unique() for _ in range(10)]
    for id_ in ids:
        await mediator.create(library, "nullify", id_, author=author)
    ended = asyncio.Event()

    async def refer(plane: Service, make: Callable[[], WriteOperation]) -> None:
        while not ended.is_set():
            assert await error_of(plane, make()) is None

    writers = [
        asyncio.create_task(
            refer(plane, lambda: create_reference(library, "nullify", unique(), busy))
        )
        for plane in (mediator, replica)
    ]
    assert await error_of(mediator, delete(library, author)) is None
    ended.set()
    await asyncio.gather(*writers)
    assert [await author_of(mediator, library, "nullify", id_) for id_ in ids] == [None] * 10
    await all_over(mediator)
