"""The installation that the coordination Redis is bound to: the first one that uses it.

| key | content |
|---|---|
| `portolan:installation` | the id of the installation, as in its catalogue |

Two installations in one Redis database would take each other's leases, such as that of a relay, and
the feed of one of them would stall. The key is as volatile as all others here, so each process sets
it again if it is missing: docs/replicas.md has the interleavings.
"""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis

from mediator.base.errors import Conflict
from mediator.coordination.errors import reply_of

__all__ = ["BOUND_TO", "REMEDY", "BoundToAnother", "InstallationBinding"]

BOUND_TO: Final = "portolan:installation"

REMEDY: Final = (
    "Set PORTOLAN_COORDINATION_URL to a Redis database that no other installation uses. Only if the"
    f" other one is gone for good, delete the key {BOUND_TO} there."
)
"""The remedy if the Redis is bound to another installation."""

_BIND: Final = """
local bound = redis.call('GET', KEYS[1])
if bound then return bound end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
"""
_MAX_ID_CHARACTERS: Final = 64
"""Characters shown of another installation's id: the key can hold anything."""


class BoundToAnother(Conflict):
    """The coordination Redis is bound to another installation, whose id is given."""

    def __init__(self, installation: str) -> None:
        super().__init__(
            f"The coordination Redis is bound to another installation, {installation}. {REMEDY}"
        )


class InstallationBinding:
    """The binding of a Redis; every method raises `Unavailable` if Redis does not answer."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._bind = redis.register_script(_BIND)

    async def installation(self) -> str | None:
        """Return the id of the installation to which Redis is bound; None: it is free."""
        reply = await reply_of(self._redis.get(BOUND_TO))
        return None if reply is None else _id_in(reply)

    async def bind(self, installation: str) -> None:
        """Bind Redis to an installation, unless it is bound.

        Args:
            installation: The id of the installation.

        Raises:
            BoundToAnother: It is bound to another installation.
        """
        bound = _id_in(await reply_of(self._bind(keys=[BOUND_TO], args=[installation])))
        if bound != installation:
            raise BoundToAnother(bound)


def _id_in(reply: bytes) -> str:
    return reply.decode("utf-8", "replace")[:_MAX_ID_CHARACTERS]
