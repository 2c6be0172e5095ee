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
"""Systems over which fields are distributed round robin; the first one holds the main group."""

_NDJSON = {"content-type": "application/x-ndjson"}
_MAX_PAGES = 1_000
_BATCH = 1_000
_MAX_ATTEMPTS = 20


@dataclass(frozen=True)
class QueryClient:
    """A client of the data API of one database."""

    client: httpx.AsyncClient
    database: str

    async def load(self, class_name: str, objects: Mapping[str, Any]) -> None:
        """Put objects by id."""
        body = b"".join(
            orjson.dumps({"id": id_, **values}, option=orjson.OPT_APPEND_NEWLINE)
            for id_, values in objects.items()
        )
        response = await self.client.post(f"{class_name}/import", content=body, headers=_NDJSON)
        assert response.status_code == 200, response.text
        assert response.json()["imported"] == len(objects), response.text

    async def send(self, class_name: str, query: Any) -> httpx.Response:
        """Send a query in the body of a request."""
        return await self.client.post(f"{class_name}/query", json=query)

    async def query(self, class_name: str, query: Any) -> Any:
        """Return the JSON response to a query."""
        response = await self.send(class_name, query)
        assert response.status_code == 200, response.text
        return response.json()

    async def all(self, class_name: str, query: Mapping[str, Any]) -> list[Any]:
        """Return the items of all pages of a query."""
        items: list[Any] = []
        after: dict[str, Any] = {}
        for _ in range(_MAX_PAGES):
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
    """Create objects as writes over several systems do, but without write intents."""
    route = model.databases[database].classes[class_name]
    rows = list(objects.items())
    for start in range(0, len(rows), _BATCH):
        steps = [
            plan_write(route, Create(database, class_name, id_, unique(), values=values), {})
            for id_, values in rows[start : start + _BATCH]
        ]
        results = await _write(calls, [step.first for step in steps])
        other_writes = [
            replace(write, creation_version=result.creation_version)
            for step, result in zip(steps, results, strict=True)
            for write in step.rest
        ]
        await _write(calls, other_writes)


async def _write(calls: StoreCalls, writes: Sequence[Write]) -> list[WriteResult]:
    """Write, and retry the writes that an overloaded store did not answer in time."""
    writes = [replace(write, remember="") for write in writes]
    results: dict[int, WriteResult] = {}
    for _ in range(_MAX_ATTEMPTS):
        pending = [number for number in range(len(writes)) if number not in results]
        outcomes = await calls.write_each([writes[number] for number in pending])
        errors = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
        for number, outcome in zip(pending, outcomes, strict=True):
            if isinstance(outcome, WriteResult):
                assert outcome.status in (Status.APPLIED, Status.REPLAYED)
                results[number] = outcome
        if not errors:
            return [results[number] for number in range(len(writes))]
        await asyncio.sleep(max(error.retry_after_s for error in errors))
    raise AssertionError("a store does not answer at all")
