"""Keys of flows in Redis, for what no client can bring about."""

from __future__ import annotations

from mediator.flows.queue import FlowKey

__all__ = ["key_of"]


def key_of(flow: FlowKey, name: str) -> str:
    return f"{{portolan:flow:{flow.database}:{flow.flow}}}:{name}"
