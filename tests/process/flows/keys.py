"""Keys of flows in Redis, for what no client can bring about."""

from __future__ import annotations

from redis.asyncio import Redis

from mediator.flows.queue import FlowKey

__all__ = ["end_leases", "key_of"]


def key_of(flow: FlowKey, name: str) -> str:
    return f"{{portolan:flow:{flow.database}:{flow.flow}}}:{name}"


async def end_leases(redis: Redis, flow: FlowKey) -> None:
    """Let the leases of a worker be over, as after a while."""
    match = key_of(flow, "lease:*")
    if leases := [name async for name in redis.scan_iter(match=match, count=10_000)]:
        await redis.delete(*leases)
