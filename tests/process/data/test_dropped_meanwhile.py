"""Requests that wait, for a body or for stores, while their class or their database is dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx
import orjson
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from app.http.negotiation import UPDATE
from mediator.control.port import ChangeOptions
from mediator.data_plane.port import DataPlane
from tests.process.caching.newspaper import assert_problem
from tests.process.service import Service, field_on

CLASSES: Final[dict[str, Any]] = {
    "people": {"fields": {"name": field_on("redis", index=True)}},
    "notes": {
        "fields": {
            "text": field_on("redis", index=True),
            "by": field_on("redis", "reference", to="people"),
        }
    },
}
Drop = Callable[[], Awaitable[object]]


@asynccontextmanager
async def api(plane: DataPlane, database: str) -> AsyncIterator[httpx.AsyncClient]:
    app = DataApi(plane, DataOptions(cursor_key=b"key"), lambda _: None)
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as opened:
        yield opened


async def send_late(drop: Drop, body: bytes) -> AsyncIterator[bytes]:
    """Yield a body after the drop."""
    await drop()
    yield body


@pytest.fixture(params=["class", "database"])
async def dropped(request: pytest.FixtureRequest, mediator: Service) -> tuple[str, Drop]:
    """A database, and the action that drops it or its class of notes."""
    database, control = await mediator.put_schema(CLASSES), mediator.mediator.control
    if request.param == "database":
        return database, lambda: control.delete_schema(database)
    remaining = {"classes": {"people": CLASSES["people"]}}
    options = ChangeOptions(drop=frozenset({"notes"}))
    return database, lambda: control.set_schema(database, remaining, options=options)


@pytest.mark.parametrize(
    ("method", "path", "body", "type_"),
    [
        ("POST", "notes/query", {"filter": {"eq": ["text", "a"]}}, "application/json"),
        ("PATCH", "notes?text=a", {"text": {"set": "b"}}, UPDATE),
    ],
    ids=["query", "filtered write"],
)
async def test_what_is_dropped_while_the_body_arrives_is_not_found(
    mediator: Service, dropped: tuple[str, Drop], method: str, path: str, body: Any, type_: str
) -> None:
    database, drop = dropped
    async with api(mediator.mediator.data, database) as client:
        content, headers = send_late(drop, orjson.dumps(body)), {"content-type": type_}
        answer = await client.request(method, path, content=content, headers=headers)
        assert "meanwhile" in assert_problem(answer, 404, "not-found")["detail"]


class _Dropping:
    """A data plane that drops something as soon as a query is answered."""

    def __init__(self, plane: DataPlane, drop: Drop) -> None:
        self._plane, self._drop = plane, drop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def query(self, *arguments: Any) -> Any:
        answer = await self._plane.query(*arguments)
        await self._drop()
        return answer


async def test_a_joined_class_that_is_dropped_before_the_answer_is_not_found(
    mediator: Service,
) -> None:
    database, control = await mediator.put_schema(CLASSES), mediator.mediator.control
    await mediator.create(database, "people", "p", name="Ann")
    await mediator.create(database, "notes", "n", text="a", by="p")
    notes_only = {"notes": {"fields": {"text": CLASSES["notes"]["fields"]["text"]}}}
    options = ChangeOptions(drop=frozenset({"people", "notes.by"}))

    async def drop() -> None:
        await control.set_schema(database, {"classes": notes_only}, options=options)

    plane = cast(DataPlane, _Dropping(mediator.mediator.data, drop))
    async with api(plane, database) as client:
        join = {"filter": {"eq": ["text", "a"]}, "join": {"as": "who", "reference": "by"}}
        answer = await client.post("notes/query", json=join)
        assert "people" in assert_problem(answer, 404, "not-found")["detail"]
