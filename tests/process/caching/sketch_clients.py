"""Clients of the coherent origin, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sketch.client import (
    CoherentClient,
    Source,
)
from tests.process.caching.coherent_origin import Origin
from tests.process.caching.serving import App

PAGE = Path(__file__).parents[3] / "docs" / "caching-clients.md"
OLD = {"title": "old", "text": "t", "hits": 1}


@asynccontextmanager
async def connected(
    origin: Origin, app: App | None = None, **options: Any
) -> AsyncIterator[CoherentClient]:
    arguments: dict[str, Any] = {"mode": "lazy", "delta_s": 10.0} | options
    time = origin.time
    assert origin.endpoint is not None
    origin.endpoint.app = app or origin
    async with CoherentClient(
        origin.endpoint.url, "news", clock=time, sleep=time.sleep, **arguments
    ) as client:
        yield client


async def title(client: CoherentClient, id_: str = "a1", **options: Any) -> tuple[str, Source]:
    read = await client.get("articles", id_, **options)
    assert read.value is not None
    return read.value["title"], read.source
