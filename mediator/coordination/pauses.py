"""Pauses by rules of admission control in the coordination Redis.

Everything that a rule can pause has its keys under one prefix, including the hash of
`scripts/pauses.lua`. A pause ends by the clock of Redis.
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
        begin: The script that begins a pause; it checks that its subject exists.
    """

    def __init__(self, redis: Redis, begin: str) -> None:
        self._redis = redis
        self._begin = redis.register_script(begin)
        self._resume, self._end, self._lasting = (
            redis.register_script(text_of("pauses", f"pauses_{name}"))
            for name in ("resume", "end", "lasting")
        )

    async def begin(self, base: str, id_: str, pause: Pause) -> bool | None:
        """Pause a subject; false if it was paused before, None if it does not exist."""
        args: list[Any] = [id_, pause.version, pause.rule, round(pause.seconds * 1000)]
        reply = await reply_of(self._begin([base], args))
        return None if reply < 0 else bool(reply)

    async def resume(self, base: str, id_: str) -> bool:
        """End a pause; false if there was none."""
        return bool(await reply_of(self._resume([base], [id_])))

    async def end(self, bases: Collection[str], before: int) -> None:
        """End the pauses by rules of versions before `before`."""
        if not bases:
            return
        async with self._redis.pipeline(transaction=False) as pipe:
            for base in bases:
                await self._end([base], [before], pipe)
            await reply_of(pipe.execute())

    async def lasting(self, base: str) -> dict[str, Pause]:
        """Return the current pauses, by id."""
        reply = iter(await reply_of(self._lasting([base])))
        pauses = {}
        for id_, numbers, ms in zip(reply, reply, reply, strict=True):
            version, rule = map(int, numbers.split())
            pauses[id_.decode()] = Pause(version, rule, ms / 1000)
        return pauses
