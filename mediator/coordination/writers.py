"""The registrations of writers in the coordination Redis; see `mediator.changes.writers`.

| key | content |
|---|---|
| `portolan:feed:writers` | hash: the last token of each registered replica |
| `portolan:feed:recovered` | hash: by system, the run id of the server for which it is recovered |
"""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis

from mediator.changes.writers import WriterRegistrations
from mediator.coordination.errors import pairs_of, reply_of

__all__ = ["RECOVERED", "WRITERS", "RedisWriters"]

WRITERS: Final = "portolan:feed:writers"
RECOVERED: Final = "portolan:feed:recovered"

_RENEW: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
"""
_REVOKE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
"""
_RUN: Final = "string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')"
_NOTE_RECOVERED: Final = f"""
if redis.replicate_commands then redis.replicate_commands() end
if {_RUN} == ARGV[2] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
"""
_READ: Final = f"""
return {{ {_RUN}, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]) }}
"""


class RedisWriters:
    """Implements `mediator.changes.writers.WriterRegistry`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._renew = redis.register_script(_RENEW)
        self._revoke = redis.register_script(_REVOKE)
        self._note_recovered = redis.register_script(_NOTE_RECOVERED)
        self._read = redis.register_script(_READ)

    async def register(self, replica: str, token: str) -> None:
        await reply_of(self._redis.hset(WRITERS, replica, token))

    async def renew(self, replica: str, token: str) -> bool:
        return bool(await reply_of(self._renew(keys=[WRITERS], args=[replica, token])))

    async def revoke(self, replica: str, token: str) -> None:
        await reply_of(self._revoke(keys=[WRITERS], args=[replica, token]))

    async def note_recovered(self, system: str, run: str) -> None:
        await reply_of(self._note_recovered(keys=[RECOVERED], args=[system, run]))

    async def read(self) -> WriterRegistrations:
        run, tokens, recovered = await reply_of(self._read(keys=[WRITERS, RECOVERED]))
        return WriterRegistrations(run.decode(), pairs_of(tokens), pairs_of(recovered))
