"""Batches that are published to Redis as the holder of a database does."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from mediator.base.lease import Lease
from mediator.coordination.leases import Leases
from mediator.coordination.standing_results import RedisStandingResults
from mediator.model.result_position import ResultPosition
from mediator.standing.results import (
    LoggedTuple,
    Offset,
    Progress,
    Publication,
    QueryKey,
    QueryState,
    StoredQuery,
    StoredResult,
)
from tests.process.redis_keys import go_back, keys_under
from tests.process.service import unique

QUERY = StoredQuery({"name": "q"}, ("r", "class:c"), QueryState(), "id of a stream")
TUPLES = [LoggedTuple("r", 1.5, {"a": None}, 7), LoggedTuple("class:c", 2, {"id": "x"}, 1, "m:3")]
PROGRESS = Progress(2.0, {"r": Offset(7, 1, 10.0)}, "position")


class Published:
    """A database with one query, and the lease of its holder."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.results = RedisStandingResults(redis)
        self.leases = Leases(redis)
        self.key = QueryKey(unique(), unique())
        self.base = f"{{portolan:standing:{self.key.database}}}:"
        self.lease = Lease(f"standing:{self.key.database}", unique())

    async def publish(self, sequence: int, **members: Any) -> None:
        publication = Publication(
            **{"tuples": TUPLES, "progress": PROGRESS, "keep_from": 0, **members}
        )
        await self.results.publish(self.key.database, self.lease, sequence, publication)

    async def after(self, position: ResultPosition) -> list[StoredResult]:
        return await self.results.results(self.key, position, 100)

    async def documents(self) -> list[bytes]:
        return [result.document for result in await self.after(ResultPosition())]

    async def batches(self) -> list[int]:
        return [batch.sequence async for batch in self.results.batches(self.key.database)]

    async def state(self) -> dict[Any, Any]:
        """Return all keys of the database in Redis."""
        return await keys_under(self.redis, self.base)

    async def go_back(self, state: dict[Any, Any]) -> None:
        """Roll the database in Redis back to a state."""
        await go_back(self.redis, self.base, state)
