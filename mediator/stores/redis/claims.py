"""Claims of unique constraints (`Claiming`): reservations; the claims are in ``claims.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from mediator.stores.port import TakenClaim, Write
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import Layout, LayoutOf
from mediator.stores.redis.scripts import RESERVE

__all__ = ["reserve"]


async def reserve(
    client: CommandClient, layout_of: LayoutOf, writes: Sequence[Write]
) -> list[TakenClaim | None]:
    """Reserve the claims of writes, one after the other (see ``reserve.lua``)."""
    layouts = [layout_of(write.fragment) for write in writes]
    with refuse_unstorable:
        commands = [_reservation(*pair) for pair in zip(layouts, writes, strict=True)]
    replies = await client.execute(commands, writes=True) if commands else []
    return [
        layout.taken_claim(*reply) if reply else None
        for layout, reply in zip(layouts, replies, strict=True)
    ]


def _reservation(layout: Layout, write: Write) -> bytes:
    arguments = [text for name, claim in write.claims.items() if claim for text in (name, claim)]
    keys = (layout.prefix(write.id), layout.claims_key)
    return RESERVE.call(keys, write.id, write.intent, *arguments)
