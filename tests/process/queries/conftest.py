"""The profiles on every placement that is asked for, loaded once for all modules of this folder."""

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
    """Queries may take their time: on a busy machine a scan takes longer than it should."""
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(seconds=120.0))


@pytest.fixture(scope="session")
def data() -> Profiles:
    return generate(1_000, walls=60)


@pytest.fixture(scope="session")
async def loaded(
    mediator: Service, data: Profiles
) -> AsyncIterator[Callable[[tuple[str, ...]], Any]]:
    """Loads the profiles on a placement, once for each that is requested."""
    known: dict[tuple[str, ...], QueryClient] = {}
    async with AsyncExitStack() as stack:

        async def load(systems: tuple[str, ...]) -> QueryClient:
            if systems not in known:
                own = mediator.mediator
                database = await mediator.put_schema(placed(CLASSES, systems, field_on))
                known[systems] = await stack.enter_async_context(query_client(mediator, database))
                for name, fields in CLASSES.items():
                    used = min(len(systems), len(fields))
                    assert len(mediator.systems_of(database, name)) == used
                    objects = data.objects[name]
                    await fill(own.data.model, own.calls, database, name, objects)
            return known[systems]

        yield load


@pytest.fixture
async def profiles(loaded: Callable[[tuple[str, ...]], Any], request: Any) -> QueryClient:
    found: QueryClient = await loaded(request.param)
    return found


@pytest.fixture
async def split(loaded: Callable[[tuple[str, ...]], Any]) -> QueryClient:
    found: QueryClient = await loaded(PLACEMENTS[-1])
    return found
