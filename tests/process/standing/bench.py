"""A database with event streams, whose standing queries are read over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.event_streams.port import EventStream, EventStreams, NewTuple, StreamKey
from mediator.model.pause import Pause
from tests.faults.conditions import eventually
from tests.process.event_streams import read_events
from tests.process.service import Service, field_on

CLASSES: dict[str, Any] = {
    "customers": {"fields": {"name": field_on("postgres"), "city": field_on("redis")}},
}
ATTRIBUTES = {"r": "a", "s": "ab", "t": "bc", "u": "c"}
Q1: dict[str, Any] = {
    "name": "q1",
    "relations": ["r", "s", "t"],
    "predicates": [["r.a", "s.a"], ["s.b", "t.b"]],
    "window_s": 10,
}
Q2: dict[str, Any] = {
    "name": "q2",
    "relations": {"S": {"stream": "s"}, "T": {"stream": "t"}, "U": {"stream": "u"}},
    "predicates": [["S.b", "T.b"], ["T.c", "U.c"]],
    "window_s": 10,
}


@dataclass
class Bench:
    service: Service
    database: str
    api: DataApi
    client: httpx.AsyncClient
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.service.mediator.data.model.databases[self.database].id

    @property
    def streams(self) -> EventStreams:
        assert self.service.mediator.event_streams is not None
        return self.service.mediator.event_streams

    async def declare(self, name: str, attributes: Iterable[str], **members: Any) -> None:
        numbers = {"retention_s": 3600.0, "most_tuples": 100_000, **members}
        stream = EventStream(name, frozenset(attributes), **numbers)
        assert await self.streams.declare(StreamKey(self.id, name), stream, 100)

    async def send(self, name: str, *tuples: tuple[float, dict[str, Any]]) -> None:
        new = [NewTuple(time_s, orjson.dumps(values)) for time_s, values in tuples]
        self.numbers[name] = await self.streams.append(StreamKey(self.id, name), new)

    async def write(self, customer: str, **values: Any) -> None:
        answer = await self.client.put(f"customers/{customer}", json=values)
        assert answer.status_code < 300, answer.text

    async def has_changes(self, object_id: str, count: int) -> bool:
        """Whether the feed has a number of changes of an object."""
        parameters = {"after": "beginning", "limit": "1000"}
        page = (await self.client.get("changes", params=parameters)).json()
        return bool([change["object"] for change in page["changes"]].count(object_id) == count)

    async def offsets(self) -> dict[str, int]:
        """Return the number of the last tuple of each relation that is in a published batch."""
        shared = self.service.mediator.coordination
        assert shared is not None
        progress = (await shared.standing_results.published(self.id)).progress
        return {name: offset.number for name, offset in progress.offsets.items()}

    async def wait_for_objects(self, class_name: str, objects: int) -> None:
        """Wait until a number of tuples of a class, and no more, are in published batches."""

        async def are_taken() -> bool:
            return (await self.offsets())[f"class:{class_name}"] >= objects

        await eventually(are_taken)
        assert (await self.offsets())[f"class:{class_name}"] == objects

    async def create(self, document: dict[str, Any]) -> str:
        answer = await self.client.post("standing-queries", json=document)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def ready(self, document: dict[str, Any]) -> str:
        """Create a query, and wait until it is executed."""
        query = await self.create(document)
        await eventually(lambda: self.has_state(query, "ready"))
        return query

    async def has_state(self, query: str, state: str) -> bool:
        answer = await self.client.get(f"standing-queries/{query}")
        return bool(answer.status_code == 200 and answer.json()["state"] == state)

    async def pause(self, query: str, rule: Pause | None = None) -> None:
        """Pause a query as a rule would, and wait until it is paused."""
        service = self.service.mediator.standing_queries
        assert service is not None
        assert await service.pause(self.database, query, rule or Pause(1, 1, 3600.0))
        await eventually(lambda: self.has_state(query, "paused"))

    async def resume(self, query: str) -> None:
        service = self.service.mediator.standing_queries
        assert service is not None
        assert await service.resume(self.database, query)

    async def show(self, query: str) -> dict[str, Any]:
        answer = await self.client.get(f"standing-queries/{query}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def page(self, query: str, **parameters: Any) -> dict[str, Any]:
        answer = await self.client.get(f"standing-queries/{query}/results", params=parameters)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    async def results(self, query: str) -> list[dict[str, Any]]:
        """Return all results, and check that their ids have no gap."""
        results: list[dict[str, Any]] = []
        while page := (await self.page(query, after=len(results), limit=1000))["results"]:
            results += page
        assert [result["id"] for result in results] == list(range(1, len(results) + 1))
        return results

    async def expect_results(self, query: str, *expected: dict[str, Any]) -> None:
        """Wait for the number of expected results, and compare their tuples in any order."""

        async def are_there() -> bool:
            return len(await self.results(query)) >= len(expected)

        await eventually(are_there)
        tuples = [result["tuples"] for result in await self.results(query)]
        assert sorted(tuples, key=_text) == sorted(expected, key=_text)

    async def wait_until_taken(self) -> None:
        """Wait until every tuple that was sent is in a published batch."""

        async def are_taken() -> bool:
            offsets = await self.offsets()
            return all(offsets.get(name, number) == number for name, number in self.numbers.items())

        await eventually(are_taken)

    async def events(self, query: str, after: int, last: str) -> list[dict[str, Any]]:
        """Read server-sent events after a result until a text arrives."""
        path = f"/v1/{self.database}/standing-queries/{query}/results"
        return await read_events(self.api, path, last, (b"last-event-id", b"%d" % after))

    async def plan(self, **parameters: Any) -> dict[str, Any]:
        answer = await self.client.get("standing-queries/plan", params=parameters)
        assert answer.status_code == 200, answer.text
        plan: dict[str, Any] = answer.json()
        return plan


def _text(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def pointers(answer: httpx.Response) -> Sequence[str]:
    return [error["pointer"] for error in answer.json()["errors"]]


@asynccontextmanager
async def bench_on(started: Service, classes: dict[str, Any] = CLASSES) -> AsyncIterator[Bench]:
    """Declare r, s, t and u in a new database."""
    database = await started.put_schema(classes)
    api = DataApi(
        started.mediator.data,
        DataOptions(cursor_key=b"key"),
        lambda _: None,
        DataServices(
            subscriptions=started.mediator.changes.subscriptions,
            standing=started.mediator.standing_queries,
        ),
    )
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url=base) as client:
        bench = Bench(started, database, api, client)
        for name, attributes in ATTRIBUTES.items():
            await bench.declare(name, attributes)
        yield bench
