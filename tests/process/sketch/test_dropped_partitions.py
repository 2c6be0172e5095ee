"""Partitions of dropped classes are removed after their outstanding purges and orphans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import httpx
import pytest
from pydantic import SecretStr

from app.coherence import caches as caches_module
from app.coherence.caches import Caches
from app.coherence.partitions import Partitions
from app.settings.main import CacheSettings
from app.settings.purge import PurgeTarget
from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.model.guard import CacheKey
from mediator.placement.decide import GroupPlacement, build_routes
from mediator.routing.model import RoutingModel
from mediator.schema.parse import parse_schema
from mediator.stores.port import SystemConfig
from sketch.protocol.keys import tag_of
from sketch.protocol.port import Partition, SketchLimits
from sketch.redis.server import RedisSketch
from sketch.ttl import Static
from tests.faults.conditions import eventually
from tests.process.service import unique
from tests.process.sketch.server_sketches import LIMITS, A, B, cache, write_keys
from tests.process.sketch.sketches import PARTITION, SHAPE, RedisWorld, World

OTHER = Partition("news", "notes")
WAIT_S = LIMITS.lease_s


def model(*names: str) -> RoutingModel:
    """Return a model of one database with these classes."""
    classes = {name: {"fields": {"text": {"type": "string"}}} for name in names}
    groups = {name: {"main": GroupPlacement("postgres", ("text",))} for name in names}
    schema = parse_schema("news", {"classes": classes})
    return RoutingModel(1, {"news": build_routes(schema, groups, dict.fromkeys(names, 1))})


class HandClock(SystemClock):
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class Replica:
    """A replica's view of a sketch's partitions; its catalogue is down until a test sets it."""

    def __init__(self, world: World, model_: RoutingModel) -> None:
        self.model = model_
        self.catalogue: RoutingModel | None = None
        self.clock = HandClock()
        self.partitions = Partitions(
            world.sketch, lambda: self.model, self.refresh, self.clock, WAIT_S
        )

    async def refresh(self) -> None:
        """Adopt the model of the catalogue."""
        if self.catalogue is None:
            raise Unavailable("It does not answer.", system="catalogue")
        self.model = self.catalogue

    async def sweep(self) -> None:
        """Remove dropped partitions now, and once a missing class counts as dropped."""
        await self.partitions.remove_dropped()
        self.clock.now_s += WAIT_S
        await self.partitions.remove_dropped()


@pytest.fixture
async def replica(world: World) -> Replica:
    """A replica that has seen both classes, one of which was dropped since."""
    replica = Replica(world, model("articles", "notes"))
    await replica.sweep()
    replica.model = replica.catalogue = model("notes")
    return replica


async def list_partitions(world: World) -> set[Partition]:
    return set(await world.sketch.partitions([]))


async def is_gone(world: World) -> bool:
    """Return whether the partition is not listed, and the server has none of its keys."""
    names = await world.names() if isinstance(world, RedisWorld) else []
    return not names and PARTITION not in await list_partitions(world)


async def test_partitions_are_listed_until_they_are_removed(world: World) -> None:
    assert await world.sketch.partitions([PARTITION, OTHER]) == {PARTITION, OTHER}
    assert await world.sketch.remove(PARTITION)
    assert PARTITION not in await list_partitions(world)


async def test_names_with_any_characters_are_listed(world: World) -> None:
    odd = Partition("ä/{b}", "c%/d")
    assert odd in await world.sketch.partitions([odd])
    await world.sketch.invalidate(odd)
    assert odd in await list_partitions(world)


async def test_a_class_that_is_dropped_before_it_is_listed_is_listed(world: World) -> None:
    await world.sketch.invalidate(PARTITION)
    assert PARTITION in await list_partitions(world)


async def test_a_partition_is_kept_while_a_copy_may_be_fresh(world: World) -> None:
    await cache(world, A, ttl_s=10.0)
    assert not await world.sketch.remove(PARTITION)
    await world.advance(10.0 + LIMITS.margin_s)
    assert await world.sketch.remove(PARTITION)


async def test_a_partition_is_kept_while_copies_from_before_a_loss_may_be_fresh(
    world: World,
) -> None:
    await world.sketch.invalidate(PARTITION)
    await world.advance(LIMITS.max_ttl_s + LIMITS.margin_s - 0.001)
    assert not await world.sketch.remove(PARTITION)
    await world.advance(0.001)
    assert await world.sketch.remove(PARTITION)


async def test_a_partition_is_kept_while_a_write_is_pending(world: World) -> None:
    await world.sketch.begin(PARTITION, [A], "t")
    await world.advance(1_000.0)
    assert not await world.sketch.remove(PARTITION)
    await world.sketch.end(PARTITION, "t", {})
    assert await world.sketch.remove(PARTITION)


async def test_late_requests_do_not_recreate_a_removed_partition(world: World) -> None:
    """A late replica still requests its orphans and its purges."""
    await cache(world, A, B)
    await write_keys(world, A, version=7)
    await world.advance(1_000.0)
    assert await world.sketch.remove(PARTITION)
    assert await is_gone(world)
    assert await world.sketch.orphans([PARTITION], 10) == []
    assert await world.sketch.take_purges([PARTITION], 10) == []
    assert await is_gone(world)
    assert await world.sketch.remove(PARTITION)
    assert await is_gone(world)


async def test_a_removed_partition_that_is_needed_again_starts_as_a_lost_one(
    world: World,
) -> None:
    await cache(world, A)
    await world.advance(1_000.0)
    assert await world.sketch.remove(PARTITION)
    if isinstance(world, RedisWorld):  # in memory nobody else can have handed out copies
        assert (await world.sketch.snapshot([PARTITION])).revalidate_all
        assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0


async def test_a_dropped_class_is_maintained_and_then_removed(
    world: World, replica: Replica
) -> None:
    await cache(world, A, ttl_s=10.0)
    await replica.sweep()
    assert replica.partitions.current() == [OTHER]
    assert replica.partitions.all() == [OTHER, PARTITION]
    await world.advance(10.0 + LIMITS.margin_s)
    await replica.sweep()
    assert replica.partitions.all() == [OTHER]
    assert PARTITION not in await list_partitions(world)


async def test_a_class_that_is_missing_for_a_moment_is_not_dropped(
    world: World, replica: Replica
) -> None:
    """Other replicas may not know of the drop yet."""
    await replica.partitions.remove_dropped()
    replica.clock.now_s += WAIT_S - 1.0
    await replica.partitions.remove_dropped()
    assert replica.partitions.all() == [OTHER]
    assert PARTITION in await list_partitions(world)
    replica.model = replica.catalogue = model("articles", "notes")
    await replica.partitions.remove_dropped()
    replica.model = replica.catalogue = model("notes")
    replica.clock.now_s += WAIT_S
    await replica.partitions.remove_dropped()
    assert PARTITION in await list_partitions(world), "it existed meanwhile"


async def test_a_recreated_class_is_not_a_dropped_one(world: World, replica: Replica) -> None:
    await world.sketch.begin(PARTITION, [A], "t")
    await replica.sweep()
    replica.model = model("articles", "notes")
    assert sorted(replica.partitions.all()) == [PARTITION, OTHER]


async def test_a_replica_that_is_late_reads_of_a_class_before_it_counts_as_dropped(
    world: World,
) -> None:
    await world.sketch.partitions([PARTITION])
    replica = Replica(world, model("notes"))
    replica.catalogue = model("articles", "notes")
    await replica.sweep()
    assert sorted(replica.partitions.all()) == [PARTITION, OTHER]
    assert PARTITION in await list_partitions(world)


async def test_nothing_counts_as_dropped_while_the_catalogue_is_away(
    world: World, replica: Replica
) -> None:
    """A class of the name may have been created since."""
    await world.sketch.begin(PARTITION, [A], "t")
    await replica.sweep()
    assert PARTITION in replica.partitions.all()
    replica.catalogue = None
    with pytest.raises(Unavailable):
        await replica.partitions.remove_dropped()
    assert replica.partitions.all() == [OTHER]


async def test_a_sketch_that_does_not_answer_raises(replica: Replica) -> None:
    sketch = RedisSketch("redis://127.0.0.1:1/0", LIMITS, SHAPE)
    partitions = Partitions(sketch, lambda: replica.model, replica.refresh, replica.clock, WAIT_S)
    with pytest.raises(Unavailable):
        await partitions.remove_dropped()
    await sketch.close()


class Proxy:
    """A cache that accepts purges unless it is `away`."""

    def __init__(self) -> None:
        self.away = True
        self.purged = ""

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            return httpx.Response(503)
        self.purged += str(request.headers)
        return httpx.Response(200)


class NoSystems:
    """Resolves orphans of a dropped class, of which nothing is stored."""

    def __init__(self) -> None:
        self.resolved: list[str] = []

    async def resolve(
        self, _database: str, _keys: Sequence[CacheKey], token: str
    ) -> Mapping[CacheKey, int]:
        self.resolved.append(token)
        return {}


SHORT = SketchLimits(
    max_ttl_s=1.0, margin_s=4.0, lease_s=0.5, purge_repeat_s=0.5, purge_lease_s=0.1
)


class Served:
    """A replica whose class is dropped, its sketch, and a cache in front of it."""

    def __init__(self, url: str) -> None:
        self.model = model("articles")
        self.proxy, self.systems = Proxy(), NoSystems()
        target = PurgeTarget(name="v", kind="varnish", at="http://proxy", token=SecretStr("x"))
        self.sketch = RedisSketch(url, SHORT, SHAPE, unique("sketch"))
        settings = CacheSettings(purge=[target])
        self.caches = Caches(settings, self.sketch, Static(), connect=self.proxy.transport)
        self.caches.start(self.systems, lambda: self.model, self.refresh)

    async def refresh(self) -> None:
        """Do nothing: the model is that of the catalogue."""


@pytest.fixture
async def served(
    redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setattr(caches_module, "LIST_INTERVAL_S", 0.05)
    served = Served(redis_config.url)
    yield served
    await served.caches.stop()
    await served.caches.close()


async def test_purges_and_orphans_of_a_dropped_class_are_processed_before_its_removal(
    served: Served,
) -> None:
    sketch, proxy = served.sketch, served.proxy
    await sketch.create(PARTITION)
    await sketch.partitions([PARTITION])
    assert (await sketch.report_read(PARTITION, [A], 1.0)).ttl_us
    await sketch.begin(PARTITION, [A], "ended")
    await sketch.end(PARTITION, "ended", {})
    await sketch.begin(PARTITION, [B], "orphaned")
    served.model = model("notes")
    proxy.away = False

    async def is_processed() -> bool:
        purged = tag_of(PARTITION.database, A) in proxy.purged
        return purged and served.systems.resolved == ["orphaned"]

    async def is_removed() -> bool:
        return PARTITION not in await sketch.partitions([])

    await eventually(is_processed)
    await eventually(is_removed)
