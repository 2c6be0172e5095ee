"""Fencing: from now on, no write of a token takes effect on a record."""

from __future__ import annotations

from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import RETENTION_MS, Layout
from mediator.stores.redis.scripts import FENCE

__all__ = ["fence"]


async def fence(client: CommandClient, layout: Layout, id_: str, token: str) -> dict[str, int]:
    """Fence a record, atomically with respect to writes; return its versions."""
    with refuse_unstorable:
        call = FENCE.call((layout.prefix(id_),), id_, token, RETENTION_MS, *layout.head[1:])
    [versions] = await client.execute([call], writes=True)
    return layout.versions(versions)
