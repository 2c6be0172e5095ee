"""The state that replicas share in the coordination Redis, and the connections to it."""

from __future__ import annotations

from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from mediator.base.clock import ServerClock, SystemClock
from mediator.changes.naming import Naming
from mediator.coordination.binding import BoundToAnother, InstallationBinding
from mediator.coordination.cluster_store import RedisClusters
from mediator.coordination.event_streams import RedisEventStreams
from mediator.coordination.feed import SCRIPTS, RedisFeed, Retention
from mediator.coordination.leases import Leases
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.coordination.standing_results import RedisStandingResults
from mediator.coordination.view_results import RedisViewResults
from mediator.coordination.view_state import RedisViewState
from mediator.coordination.writers import RedisWriters
from mediator.stores.port import SystemConfig
from mediator.stores.redis.client import CommandClient
from redis_connection import connection
from redis_connection.commands import command

__all__ = ["Coordination", "client_of", "connect"]


class Coordination:
    """All shared state in one Redis; calls fail while it is bound to another installation."""

    def __init__(
        self,
        url: str,
        retention: Retention | None = None,
        naming: Naming = lambda _, event: event,
    ) -> None:
        self._clock = SystemClock()
        self._pool = _pool_of(url)
        self.redis = Redis.from_pool(self._pool)
        self._client = client_of(url)
        self._unrefused = connect(url)
        self._binding = InstallationBinding(self._unrefused)
        self.feed = RedisFeed(self.redis, self._client, retention, naming)
        self.leases = Leases(self.redis)
        self.writers = RedisWriters(self.redis)
        self.view_state = RedisViewState(self.redis)
        self.message_queue = RedisMessageQueue(self.redis)
        self.view_results = RedisViewResults(self.redis)
        self.standing_results = RedisStandingResults(self.redis)
        self.event_streams = RedisEventStreams(self.redis)
        self.clusters = RedisClusters(self.redis)
        self.cleared: Final = (
            self.feed,
            self.message_queue,
            self.view_results,
            self.event_streams,
            self.standing_results,
        )
        """The components with state of each database, which is cleared when one is dropped."""

    @property
    def is_refused(self) -> bool:
        """Whether it was bound to another installation at the last reply to `bind`."""
        return self._pool.is_refused

    async def bind(self, installation: str) -> None:
        """Bind this Redis to an installation, by its id, unless it is bound.

        While it is bound to another one, all other calls fail as if Redis did not answer.

        Raises:
            BoundToAnother: It is bound to another one.
            Unavailable: Redis does not answer; `is_refused` is unchanged.
        """
        try:
            await self._binding.bind(installation)
        except BoundToAnother:
            self._pool.is_refused = True
            await self._client.close()
            raise
        if self._pool.is_refused:
            self._pool.is_refused = False
            self._client.open()

    async def skew_s(self) -> float:
        """Return the minimum seconds by which Redis's clock is ahead; raises `StoreError`."""
        sent_at = self._clock.monotonic()
        ((seconds, microseconds),) = await self._client.execute([command("TIME")])
        time = ServerClock(self._clock)
        time.read(int(seconds) * 1_000_000 + int(microseconds), sent_at)
        return time.skew_s or 0.0

    async def close(self) -> None:
        await self._client.close()
        await self.redis.aclose()
        await self._unrefused.aclose()


class _Pool(ConnectionPool):
    """Connections to a Redis; refused while it is bound to another installation."""

    is_refused = False

    async def get_connection(self, *args: Any, **options: Any) -> AbstractConnection:
        if self.is_refused:
            raise RedisConnectionError("It is bound to another installation.")
        pool: Any = super()  # its methods have no annotations
        connection: AbstractConnection = await pool.get_connection(*args, **options)
        return connection


def client_of(url: str) -> CommandClient:
    """Return a client for the calls of the feed; it connects on demand."""
    config = SystemConfig("coordination", "redis", url, deadline_s=connection.TIMEOUT_S)
    return CommandClient(config, SCRIPTS)


def connect(url: str) -> Redis:
    """Return a client with a pool of connections, which are opened on demand."""
    return Redis.from_pool(_pool_of(url))


def _pool_of(url: str) -> _Pool:
    return _Pool.from_url(
        url,
        decode_responses=False,
        # No call of ours blocks for so long on purpose.
        socket_timeout=connection.TIMEOUT_S,
        socket_connect_timeout=connection.TIMEOUT_S,
        # An idle connection may have died: retry once, on a fresh one.
        retry=Retry(NoBackoff(), 1),
    )
