"""Pauses by rules of admission control in the coordination Redis.

What a rule can pause has its keys under one prefix, and there the hash of `scripts/pauses.lua`. A
pause ends by the clock of the Redis.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from redis.asyncio import Redis

from mediator.coordination.errors import reply_of
from mediator.coordination.scripts import text_of
from mediator.model.pause import Pause

__all__ = ["Pauses"]


class Pauses:
    """The pauses of message flows, or of standing queries.

    Args:
        begin: The script that begins one; it knows what there is to be paused.
    """

    def __init__(self, redis: Redis, begin: str) -> None:
        self._redis = redis
        self._begin = redis.register_script(begin)
        self._resume, self._end, self._lasting = (
            redis.register_script(text_of("pauses", f"pauses_{name}"))
            for name in ("resume", "end", "lasting")
        )

    async def begin(self, base: str, id_: str, pause: Pause) -> bool | None:
        """Pause something; false if it was paused before, None if it is not there."""
        args: list[Any] = [id_, pause.version, pause.rule, round(pause.seconds * 1000)]
        reply = await reply_of(self._begin([base], args))
        return None if reply < 0 else bool(reply)

    async def resume(self, base: str, id_: str) -> bool:
        """End a pause; false if there is none."""
        return bool(await reply_of(self._resume([base], [id_])))

    async def end(self, bases: Collection[str], before: int) -> None:
        """End the pauses by rules of versions before this one."""
        if not bases:
            return
        async with self._redis.pipeline(transaction=False) as pipe:
            for base in bases:
                await self._end([base], [before], pipe)
            await reply_of(pipe.execute())

    async def lasting(self, base: str) -> dict[str, Pause]:
        """Return the pauses that last, by id."""
        found = iter(await reply_of(self._lasting([base])))
        pauses = {}
        for id_, numbers, ms in zip(found, found, found, strict=True):
            version, rule = map(int, numbers.split())
            pauses[id_.decode()] = Pause(version, rule, ms / 1000)
        return pauses
