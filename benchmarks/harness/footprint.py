"""The footprint of a service: memory, descriptors, connections, keys and rows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import median
from typing import Any, Final, Self

import asyncpg
import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import func, select

from mediator.catalogue.tables import metadata
from mediator.embedded.port import Kind

__all__ = ["Footprint", "Watcher"]

_EVERY_S: Final = 2.0
_MIB: Final = 2**20
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
_ROWS: Final = [str(select(func.count()).select_from(table)) for table in metadata.sorted_tables]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The footprint at one time.

    Attributes:
        resident: Memory of the watched process (MiB).
        connections: Connections of all replicas to Redis and PostgreSQL, as those count them, and
            of the watched process to other systems.
        keys: Keys in Redis that do not expire.
        rows: Rows in the catalogue.
    """

    resident: float
    descriptors: float
    connections: float
    keys: float
    rows: float

    @classmethod
    def median_of(cls, samples: Sequence[Self]) -> Self:
        return cls(*(median(column) for column in zip(*map(astuple, samples), strict=True)))


class Watcher:
    """Samples a process and the stores every two seconds, except while a store is down."""

    def __init__(self, pid: int, urls: Mapping[Kind, str]) -> None:
        self._process = psutil.Process(pid)
        self._urls = urls
        self.samples: list[Footprint] = []

    async def watch(self) -> None:
        while True:
            with contextlib.suppress(RedisError, asyncpg.PostgresError, OSError):
                self.samples.append(await self.sample())
            await asyncio.sleep(_EVERY_S)

    async def sample(self) -> Footprint:
        to_redis, keys = await self._redis()
        to_postgres, rows = await self._postgres()
        with self._process.oneshot():
            tcp = self._process.net_connections("tcp")
            to_mongo = sum(c.status == psutil.CONN_ESTABLISHED and self._is_mongo(c) for c in tcp)
            resident = self._process.memory_info().rss / _MIB
            descriptors = self._process.num_fds()
        return Footprint(resident, descriptors, to_redis + to_postgres + to_mongo, keys, rows)

    def _is_mongo(self, connection: Any) -> bool:
        url = self._urls.get("mongodb")
        return bool(url and connection.raddr and f":{connection.raddr.port}" in url)

    async def _redis(self) -> tuple[int, int]:
        async with Redis.from_url(self._urls["redis"], socket_timeout=_EVERY_S) as redis:
            clients: Mapping[str, Any] = await redis.info("clients")
            spaces: Mapping[str, Mapping[str, int]] = await redis.info("keyspace")
            persistent = sum(space["keys"] - space["expires"] for space in spaces.values())
            return int(clients["connected_clients"]) - 1, persistent

    async def _postgres(self) -> tuple[int, int]:
        connection = await asyncpg.connect(self._urls["postgresql"], timeout=_EVERY_S)
        try:
            rows = sum([await connection.fetchval(statement) for statement in _ROWS])
            return await connection.fetchval(_CONNECTIONS) - 1, rows
        finally:
            await connection.close()
