"""Names of partitions in Redis, and the list of existing partitions.

A script reads the keys of one partition only, so the list is stored separately: any process that
knows a class lists its partition, and a removed partition leaves the list.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, unquote

from sketch.protocol.port import Partition
from sketch.redis.script_client import ScriptClient

__all__ = ["ListedPartitions", "name_of", "partition_of"]


def name_of(partition: Partition) -> str:
    """Return the name of a partition within its keys, without braces."""
    return "/".join(quote(name, safe="") for name in partition)


def partition_of(name: str) -> Partition:
    """Return the partition of a name."""
    database, _, class_name = name.partition("/")
    return Partition(unquote(database), unquote(class_name))


class ListedPartitions:
    """A set in Redis; each call raises `SketchUnavailable`."""

    def __init__(self, client: ScriptClient, namespace: str) -> None:
        self._client = client
        self._key = f"{{{namespace}:partitions}}"

    async def read(self) -> set[Partition]:
        members = await self._client.request("SMEMBERS", self._key)
        return {partition_of(member.decode()) for member in members}

    async def add(self, partitions: Collection[Partition]) -> None:
        if partitions:
            await self._client.request("SADD", self._key, *map(name_of, partitions))

    async def discard(self, partition: Partition) -> None:
        await self._client.request("SREM", self._key, name_of(partition))
