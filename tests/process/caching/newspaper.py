"""The data API over a data plane in memory, with the schema of a small newspaper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.observation import Observation
from mediator.schema.tree import ClassSchema, Field, Mode, Schema
from mediator.schema.types import FieldType
from tests.process.data.memory_plane import MemoryPlane, routing_model

UPDATE = "application/vnd.portolan.update+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_ARTICLES = ClassSchema(
    "articles",
    {
        "title": Field("title", FieldType.STRING, required=True, max_length=300),
        "body": Field("body", FieldType.DOCUMENT),
        "tags": Field("tags", FieldType.SET, items=FieldType.STRING),
        "price": Field("price", FieldType.DECIMAL),
        "hits": Field("hits", FieldType.INTEGER, default=0, index=True, group="hits"),
    },
)
_LOCKED = ClassSchema("locked", {"title": Field("title", FieldType.STRING)}, require_if_match=True)
NEWS = Schema("news", {"articles": _ARTICLES, "locked": _LOCKED})
ADVICE = Schema("advice", {}, mode=Mode.ADVISORY)
OPTIONS = DataOptions(
    cursor_key=b"secret",
    origins={"news": ("https://paper.example",)},
    max_body_bytes=4_096,
    max_line_bytes=256,
    chunk_lines=3,
    batch_limit=10,
    page_limit=5,
)


@dataclass
class Newspaper:
    """The application, its plane, its observations, and a client."""

    client: httpx.AsyncClient
    app: DataApi
    plane: MemoryPlane
    observed: list[Observation] = field(default_factory=list)

    async def put(self, id_: str, **members: Any) -> httpx.Response:
        answer = await self.client.put(f"articles/{id_}", json={"title": id_, **members})
        assert answer.is_success, answer.text
        return answer

    async def patch(self, address: str, type_: str, body: Any, **headers: str) -> httpx.Response:
        fields = {"content-type": type_} | {k.replace("_", "-"): v for k, v in headers.items()}
        return await self.client.patch(address, json=body, headers=fields)


@asynccontextmanager
async def newspaper(options: DataOptions = OPTIONS) -> AsyncIterator[Newspaper]:
    plane = MemoryPlane(routing_model(1, NEWS, ADVICE))
    observed: list[Observation] = []
    app = DataApi(plane, options, observed.append)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test/v1/news/") as client:
        yield Newspaper(client, app, plane, observed)


def assert_problem(answer: httpx.Response, status: int, slug: str, *pointers: str) -> Any:
    """Check the members that every problem has; return the document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    document = answer.json()
    assert document["type"] == f"/problems/{slug}"
    assert document["status"] == status
    assert document["instance"] == answer.headers["x-request-id"]
    assert document["title"]
    assert document["detail"]
    reported = [error["pointer"] for error in document.get("errors", [])]
    assert set(pointers) <= set(reported), reported
    return document
