"""Queries over HTTP, on classes whose fields are distributed over the systems in many ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import orjson

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.errors import Unavailable
from mediator.model.operations import Create
from mediator.operations.calls import StoreCalls
from mediator.routing.fragments import plan_write
from mediator.routing.model import RoutingModel
from mediator.schema.types import Values
from mediator.stores.port import Status, Write, WriteResult
from tests.process.service import Service, unique

__all__ = ["PLACEMENTS", "QueryClient", "fill", "query_client"]

PLACEMENTS: tuple[tuple[str, ...], ...] = (
    ("redis",),
    ("postgres",),
    ("mongo",),
    ("postgres", "redis"),
    ("redis", "mongo"),
    ("mongo", "postgres"),
    ("postgres", "mongo", "redis"),
)
"""The systems that fields are distributed over round robin; the first one holds the main group."""

_NDJSON = {"content-type": "application/x-ndjson"}
_MOST_PAGES = 1_000
_AT_ONCE = 1_000
_TRIES = 20


@dataclass(frozen=True)
class QueryClient:
    """A client of the data API of one database."""

    client: httpx.AsyncClient
    database: str

    async def load(self, class_name: str, objects: Mapping[str, Any]) -> None:
        """Put objects, given by id."""
        body = b"".join(
            orjson.dumps({"id": id_, **values}, option=orjson.OPT_APPEND_NEWLINE)
            for id_, values in objects.items()
        )
        answer = await self.client.post(f"{class_name}/import", content=body, headers=_NDJSON)
        assert answer.status_code == 200, answer.text
        assert answer.json()["imported"] == len(objects), answer.text

    async def send(self, class_name: str, query: Any) -> httpx.Response:
        """Send a query in a body."""
        return await self.client.post(f"{class_name}/query", json=query)

    async def query(self, class_name: str, query: Any) -> Any:
        """Return the answer to a query."""
        answer = await self.send(class_name, query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def all(self, class_name: str, query: Mapping[str, Any]) -> list[Any]:
        """Return the items of all pages of a query."""
        items: list[Any] = []
        after: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await self.query(class_name, {**query, **after})
            items += page["items"]
            if page["next"] is None:
                return items
            assert len(page["items"]) == query["limit"]
            after = {"after": page["next"]}
        raise AssertionError("the pages do not end")

    async def get(self, address: str) -> httpx.Response:
        """Send a GET."""
        return await self.client.get(address)


@asynccontextmanager
async def query_client(mediator: Service, database: str) -> AsyncIterator[QueryClient]:
    """Open the data API of a mediator for one database."""
    app = DataApi(mediator.mediator.data, DataOptions(cursor_key=b"secret"), lambda _: None)
    base = f"http://test/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
        yield QueryClient(client, database)


async def fill(
    model: RoutingModel,
    calls: StoreCalls,
    database: str,
    class_name: str,
    objects: Mapping[str, Values],
) -> None:
    """Create objects as writes over several systems do, but without an intent in each record."""
    route = model.databases[database].classes[class_name]
    rows = list(objects.items())
    for start in range(0, len(rows), _AT_ONCE):
        steps = [
            plan_write(route, Create(database, class_name, id_, unique(), values=values), {})
            for id_, values in rows[start : start + _AT_ONCE]
        ]
        decided = await _written(calls, [step.first for step in steps])
        rest = [
            replace(write, creation_version=result.creation_version)
            for step, result in zip(steps, decided, strict=True)
            for write in step.rest
        ]
        await _written(calls, rest)


async def _written(calls: StoreCalls, writes: Sequence[Write]) -> list[WriteResult]:
    """Write, and write again what an overloaded store did not answer in time."""
    writes = [replace(write, remember="") for write in writes]
    results: dict[int, WriteResult] = {}
    for _ in range(_TRIES):
        left = [number for number in range(len(writes)) if number not in results]
        answers = await calls.write_each([writes[number] for number in left])
        errors = [answer for answer in answers if isinstance(answer, Unavailable)]
        for number, answer in zip(left, answers, strict=True):
            if isinstance(answer, WriteResult):
                assert answer.status in (Status.APPLIED, Status.REPLAYED)
                results[number] = answer
        if not errors:
            return [results[number] for number in range(len(writes))]
        await asyncio.sleep(max(error.retry_after_s for error in errors))
    raise AssertionError("a store does not answer at all")
