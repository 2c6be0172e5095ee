"""Profiles on each requested placement, loaded once for all modules of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from benchmarks.harness.profiles import CLASSES, Profiles, generate, placed
from mediator.query.budget import Limits
from tests.process.queries.querying import PLACEMENTS, QueryClient, fill, query_client
from tests.process.service import Service, field_on


@pytest.fixture(autouse=True)
def unhurried(mediator: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit of queries: scans are slow on a busy machine."""
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(seconds=120.0))


@pytest.fixture(scope="session")
def data() -> Profiles:
    return generate(1_000, walls=60)


@pytest.fixture(scope="session")
async def loaded(
    mediator: Service, data: Profiles
) -> AsyncIterator[Callable[[tuple[str, ...]], Any]]:
    """Load the profiles once on each requested placement."""
    clients: dict[tuple[str, ...], QueryClient] = {}
    async with AsyncExitStack() as stack:

        async def load(systems: tuple[str, ...]) -> QueryClient:
            if systems not in clients:
                plane = mediator.mediator
                database = await mediator.put_schema(placed(CLASSES, systems, field_on))
                clients[systems] = await stack.enter_async_context(query_client(mediator, database))
                for name, fields in CLASSES.items():
                    system_count = min(len(systems), len(fields))
                    assert len(mediator.systems_of(database, name)) == system_count
                    objects = data.objects[name]
                    await fill(plane.data.model, plane.calls, database, name, objects)
            return clients[systems]

        yield load


@pytest.fixture
async def profiles(loaded: Callable[[tuple[str, ...]], Any], request: Any) -> QueryClient:
    client: QueryClient = await loaded(request.param)
    return client


@pytest.fixture
async def split(loaded: Callable[[tuple[str, ...]], Any]) -> QueryClient:
    client: QueryClient = await loaded(PLACEMENTS[-1])
    return client
