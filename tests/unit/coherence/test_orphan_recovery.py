"""Orphaned writes: how many are resolved in a round, and what happens to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from app.coherence.orphans import BATCH, Recovery
from mediator.base.errors import Unavailable
from mediator.model.guard import CacheKey, NullGuard
from mediator.routing.model import EMPTY
from sketch.protocol.port import EndResult, Partition, PendingWrite, SketchUnavailable

PARTITION = Partition("news", "articles")
KEY = "articles/1#main"


class World:
    """A sketch with orphans, and the systems that resolve them."""

    def __init__(self, orphans: int) -> None:
        self.left = {
            str(token): PendingWrite(PARTITION, str(token), (KEY,)) for token in range(orphans)
        }
        self.rounds = 0
        self.unknown: set[str] = set()
        self.away = False

    async def orphans(self, _partitions: Sequence[Partition], limit: int) -> list[PendingWrite]:
        self.rounds += 1
        if self.away:
            raise SketchUnavailable
        return list(self.left.values())[:limit]

    async def resolve(
        self, _database: str, keys: Sequence[CacheKey], token: str
    ) -> Mapping[CacheKey, int]:
        if token in self.unknown:
            raise Unavailable("It does not answer.", system="postgres")
        return dict.fromkeys(keys, 1)

    async def end(
        self, _partition: Partition, token: str, versions: Mapping[str, int]
    ) -> EndResult:
        assert versions == {KEY: 1}
        del self.left[token]
        return EndResult.DONE

    async def recover(self) -> None:
        recovery = Recovery(cast("Any", self), NullGuard(), self, lambda: EMPTY)
        await recovery.run()


async def test_all_orphans_of_a_replica_are_resolved_in_one_round() -> None:
    world = World(3 * BATCH + 1)
    await world.recover()
    assert not world.left
    assert world.rounds == 4


async def test_orphans_that_cannot_be_resolved_wait_for_the_next_round() -> None:
    world = World(2 * BATCH)
    world.unknown = {"7", "150"}
    await world.recover()
    assert (len(world.left), world.rounds) == (BATCH + 1, 1)
    await world.recover()
    assert set(world.left) == {"7", "150", "199"}
    world.unknown = set()
    await world.recover()
    assert not world.left


async def test_a_sketch_that_does_not_answer_raises() -> None:
    world = World(1)
    world.away = True
    with pytest.raises(Unavailable):
        await world.recover()
