"""Retries of upserts by unique values whose first attempt was killed, over two systems."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.access.owned_plane import OwnedPlane
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE
from tests.process.data.pinned.shop import Shop
from tests.process.service import Service, field_on, service, unique
from tests.process.transactions.crashable import CRASH_POINT, CrashPoint, Killed, make_crashable
from tests.process.transactions.open_writes import expire, let_overdue

NEWEST: Final = 2
PATCHES: Final[list[tuple[int, str, Any]]] = [
    (NEWEST, MERGE, {"name": "Ada"}),
    (NEWEST, MERGE, {"visits": 1}),
    (NEWEST, UPDATE, {"visits": {"inc": 1}}),
    (NEWEST, UPDATE, {"name": {"set": "Ada"}, "visits": {"inc": 1}}),
    (NEWEST, JSON_PATCH, [{"op": "replace", "path": "/visits", "value": 9}]),
    (1, MERGE, {"name": "Ada"}),
    (1, JSON_PATCH, [{"op": "replace", "path": "/name", "value": "Ada"}]),
]
"""Schema versions and patches; the first version has the fields of one system only."""


@dataclass
class People:
    """A class over two systems, with a replica that dies and another one that serves."""

    victim: Shop
    other: Shop

    async def upsert(self, by: Shop, key: str, patch: tuple[int, str, Any]) -> httpx.Response:
        version, type_, body = patch
        headers = {"content-type": type_, "idempotency-key": key}
        path = f"people?email={key}&upsert=true"
        return await by.send("PATCH", path, version, json=body, headers=headers)

    async def die(self, key: str, patch: tuple[int, str, Any], crash: CrashPoint) -> None:
        """Send an upsert to the replica that dies at a step."""

        async def crashing() -> None:
            CRASH_POINT.set(crash)
            answer = await self.upsert(self.victim, key, patch)
            assert answer.status_code == 201, answer.text

        with pytest.MonkeyPatch.context() as patched:
            make_crashable(self.victim.service.mediator, patched)
            try:
                await asyncio.create_task(crashing())
            except Killed:
                assert crash.is_over
        if "commit" not in crash.taken:  # nothing is applied, so nobody waits for its completion
            await let_overdue(self.victim.service)

    async def retry(self, key: str, patch: tuple[int, str, Any]) -> httpx.Response:
        """Retry at the other replica until that may resolve the first attempt."""
        answers: list[httpx.Response] = []

        async def is_answered() -> bool:
            answers.append(await self.upsert(self.other, key, patch))
            if answers[-1].is_success:
                return True
            await let_overdue(self.other.service)
            return False

        await eventually(is_answered)
        return answers[-1]


@pytest.fixture(scope="module")
async def other(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> AsyncIterator[Service]:
    """Another replica."""
    async with service(system_configs, mediator.catalogue_url) as replica:
        yield replica


@pytest.fixture(params=[("postgres", "redis"), ("redis", "mongo")], ids="-".join)
async def people(request: pytest.FixtureRequest, mediator: Service, other: Service) -> People:
    first, second = request.param
    fields = {
        "email": field_on(first, unique=True, index=True),
        "name": field_on(first, default="?"),
        "made": field_on(first, "timestamp", default="now"),
    }
    victim = Shop.of(mediator)
    await victim.change({"people": {"fields": fields}})
    second_fields = {
        "visits": field_on(second, "integer", default=5, group="visits"),
        "seen": field_on(second, "timestamp", default="now", group="visits"),
    }
    assert await victim.change({"people": {"fields": fields | second_fields}}) == NEWEST
    await other.mediator.schemas.refresh()  # it may have seen the first version already
    assert set(mediator.systems_of(victim.database, "people")) == {first, second}
    return People(victim, Shop(other, victim.database, narrowed_api(other)))


def narrowed_api(replica: Service) -> DataApi:
    """Return an API over an owned plane that restricts nobody."""
    mediator = replica.mediator
    plane = OwnedPlane(mediator.data, lambda _database, _class: None)
    options = DataOptions(cursor_key=b"key")
    return DataApi(plane, options, lambda _: None, former_schemas=mediator.former_schemas)


def crash_points() -> Iterator[CrashPoint]:
    """Yield crash points, until an attempt survives the last one."""
    step, crash = 0, CrashPoint(0, after=True)
    while not step or crash.is_over:
        crash = CrashPoint(step, after=True)
        yield crash
        step += 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("patch", PATCHES, ids=str)
async def test_a_retry_is_answered_as_the_attempt_would_have_been(
    people: People, patch: tuple[int, str, Any]
) -> None:
    steps: list[str] = []
    for crash in crash_points():
        key = unique("key")
        await people.die(key, patch, crash)
        retried = await people.retry(key, patch)
        assert retried.status_code == 201, (crash.taken, retried.text)
        stored = await people.other.send("GET", f"people/{retried.json()['id']}", patch[0])
        assert retried.json() == stored.json(), crash.taken
        assert retried.headers.get("etag") == stored.headers["etag"], crash.taken
        page = await people.other.send("GET", f"people?email={key}", patch[0])
        assert len(page.json()["items"]) == 1, crash.taken
        steps = crash.taken
    assert steps.count("write") == 2, steps
    await expire(people.other.service)
