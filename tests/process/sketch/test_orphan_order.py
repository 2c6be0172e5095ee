"""Recovery of orphans from both server sketches: none waits for a system that does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from app.coherence.orphans import BATCH, Recovery
from mediator.base.errors import Unavailable
from mediator.model.guard import CacheKey, NullGuard
from sketch.protocol.port import Partition, ServerSketch
from sketch.redis.server import RedisSketch
from tests.process.sketch.server_sketches import LIMITS
from tests.process.sketch.sketches import SHAPE, World

FIRST, SECOND = Partition("news", "articles"), Partition("news", "notes")
Fails = Callable[[Sequence[CacheKey]], bool]


class Recovering:
    """Recovery from a sketch, where the systems of some keys do not answer."""

    def __init__(self, sketch: ServerSketch, fails: Fails) -> None:
        self.sketch = sketch
        self.fails = fails
        self.attempts = 0
        # Without another rule, orphans of the first class are recovered first.
        self.recovery = Recovery(sketch, NullGuard(), self, lambda: [FIRST, SECOND])

    async def resolve(
        self, _database: str, keys: Sequence[CacheKey], _token: str
    ) -> Mapping[CacheKey, int]:
        self.attempts += 1
        if self.fails(keys):
            raise Unavailable("It does not answer.", system="postgres")
        return dict.fromkeys(keys, 1)

    async def begin(self, partition: Partition, count: int, id_: str = "down") -> None:
        for number in range(count):
            key = f"{partition.class_name}/{id_}{number}#main"
            await self.sketch.begin(partition, [key], f"{id_}-{number}")

    async def remaining(self) -> list[str]:
        orphans = await self.sketch.orphans([FIRST, SECOND], 10_000)
        return [orphan.token for orphan in orphans]


def is_of_first(keys: Sequence[CacheKey]) -> bool:
    return any(key.class_name == FIRST.class_name for key in keys)


def is_named_down(keys: Sequence[CacheKey]) -> bool:
    return any(key.id.startswith("down") for key in keys)


@pytest.mark.parametrize("count", [1, BATCH + 1])
async def test_orphans_of_a_healthy_system_do_not_wait_for_those_of_one_that_is_down(
    world: World, count: int
) -> None:
    recovering = Recovering(world.sketch, is_of_first)
    await recovering.begin(FIRST, 2 * BATCH)
    await recovering.begin(SECOND, count, "up")
    await world.advance(LIMITS.lease_s)
    await recovering.recovery.run()
    assert not [token for token in await recovering.remaining() if token.startswith("up")]
    assert recovering.attempts <= count + BATCH, "at most a batch of failing orphans"


async def test_orphans_of_one_class_do_not_wait_for_those_whose_system_is_down(
    world: World,
) -> None:
    """Its groups are on several systems."""
    recovering = Recovering(world.sketch, is_named_down)
    await recovering.begin(FIRST, BATCH + 3)
    await world.advance(1.0)
    await recovering.begin(FIRST, 2, "up")
    await world.advance(LIMITS.lease_s)
    for _ in range(3):  # each class has half a batch
        recovering.attempts = 0
        await recovering.recovery.run()
        assert recovering.attempts <= BATCH
    assert not [token for token in await recovering.remaining() if token.startswith("up")]


async def test_orphans_that_have_failed_are_recovered_once_their_system_answers(
    world: World,
) -> None:
    recovering = Recovering(world.sketch, is_named_down)
    await recovering.begin(FIRST, BATCH + 2)
    await world.advance(LIMITS.lease_s)
    await recovering.recovery.run()
    assert len(await recovering.remaining()) == BATCH + 2
    recovering.fails = lambda _: False
    for _ in range(
        2
    ):  # the first run continues after the failed ones, the second starts from the beginning
        await recovering.recovery.run()
    assert await recovering.remaining() == []


async def test_a_sketch_that_does_not_answer_raises() -> None:
    sketch = RedisSketch("redis://127.0.0.1:1/0", LIMITS, SHAPE)
    with pytest.raises(Unavailable):
        await Recovering(sketch, is_of_first).recovery.run()
    await sketch.close()


async def test_all_orphans_of_a_replica_are_recovered_in_one_run(world: World) -> None:
    recovering = Recovering(world.sketch, lambda _: False)
    await recovering.begin(FIRST, 2 * BATCH + 1)
    await world.advance(LIMITS.lease_s)
    await recovering.recovery.run()
    assert await recovering.remaining() == []
