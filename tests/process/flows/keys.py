"""Keys of flows in Redis, for states that no client can cause."""

from __future__ import annotations

from redis.asyncio import Redis

from mediator.flows.queue import FlowKey

__all__ = ["end_leases", "key_of"]


def key_of(flow: FlowKey, name: str) -> str:
    return f"{{portolan:flow:{flow.database}:{flow.flow}}}:{name}"


async def end_leases(redis: Redis, flow: FlowKey) -> None:
    """End the leases of workers, as their expiry does."""
    match = key_of(flow, "lease:*")
    if leases := [name async for name in redis.scan_iter(match=match, count=10_000)]:
        await redis.delete(*leases)
