"""The newspaper's requests: hits one by one and in batches, with Zipf's law, and the top ten."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import orjson

from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadPlan, LoadProcess, LoadResult
from app.commands.demo.service import Service, succeed

__all__ = ["BATCH", "batched_hits", "draw", "drive", "single_hits", "top_ten", "total_hits"]

BATCH = 100
"""Updates in one batch."""

_ARTICLES = [f"a{number}" for number in range(100)]
_HIT = {"hits": {"inc": 1}}
_UPDATE = {"Content-Type": "application/vnd.portolan.update+json", "Prefer": "return=minimal"}
_BATCH = {"Content-Type": "application/json", "Prefer": "return=minimal"}
_SINGLES = 2_000
_BATCHES = 40

T = TypeVar("T")


def draw(items: Sequence[T], count: int, seed: int) -> list[T]:
    """Draw items with replacement by Zipf's law: the k-th a k-th as often as the first."""
    weights = [1 / rank for rank in range(1, len(items) + 1)]
    return Random(seed).choices(items, weights, k=count)


def single_hits(
    database: str, seed: int, connections: int = 16, every_s: float | None = None
) -> LoadLane:
    body = orjson.dumps(_HIT)
    ids = draw(_ARTICLES, _SINGLES, seed)
    paths = (f"/v1/{database}/articles/{id_}" for id_ in ids)
    return LoadLane(
        [render("PATCH", path, body, _UPDATE) for path in paths], connections, every_s=every_s
    )


def batched_hits(database: str, seed: int, connections: int = 4) -> LoadLane:
    all_ids = draw(_ARTICLES, _BATCHES * BATCH, seed)
    batches = [all_ids[start : start + BATCH] for start in range(0, len(all_ids), BATCH)]
    path = f"/v1/{database}/batch"
    requests = [render("POST", path, _batch(ids), _BATCH) for ids in batches]
    return LoadLane(requests, connections, operations=BATCH)


def top_ten(database: str, connections: int = 1, every_s: float | None = None) -> LoadLane:
    path = f"/v1/{database}/articles?order=-hits&limit=10&fields=hits"
    return LoadLane([render("GET", path)], connections, every_s=every_s)


async def drive(
    load: LoadProcess, service: Service, lanes: list[LoadLane], seconds: float
) -> list[LoadResult]:
    return await load.drive(LoadPlan(service.host, service.port, lanes, seconds))


async def total_hits(service: Service, database: str) -> int:
    listing = service.data.get(f"{database}/articles", params={"fields": "hits", "limit": "100"})
    return sum(item["hits"] for item in (await succeed(listing))["items"])


def _batch(ids: list[str]) -> bytes:
    update = {"op": "update", "class": "articles", "body": _HIT}
    return orjson.dumps({"operations": [{**update, "id": id_} for id_ in ids]})
