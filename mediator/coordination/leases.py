"""Leases in the coordination Redis, for work that one process may do at a time.

The keys are volatile and so are their guarantees: a process that was paused can act on a lease that
another one has taken meanwhile. If that can do harm, the script that acts compares the token
(`Lease`) with the key in the same step.
"""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from mediator.base.lease import Lease
from mediator.coordination.errors import reply_of

__all__ = ["Leases"]

_ACQUIRE: Final = """
if (redis.call('GET', KEYS[1]) or ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class Leases:
    """Leases in the coordination Redis.

    Every method raises `Unavailable` if Redis does not answer; then the lease may be held or not.
    """

    def __init__(self, redis: Redis) -> None:
        self._acquire = redis.register_script(_ACQUIRE)
        self._release = redis.register_script(_RELEASE)

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        return await self._call(self._acquire, name, token, max(1, round(ttl_s * 1000)))

    async def release(self, name: str, token: str) -> None:
        await self._call(self._release, name, token)

    async def _call(self, script: AsyncScript, name: str, token: str, *args: int) -> bool:
        return bool(await reply_of(script(keys=[Lease(name, token).key], args=[token, *args])))
