"""The eleven queries on large data."""

from __future__ import annotations

import pytest

from benchmarks.harness.profiles import CLASSES, QUERIES, generate, placed
from mediator.query.budget import Limits
from tests.process.queries.querying import PLACEMENTS, fill, query_client
from tests.process.service import Service, field_on

LARGE, LARGE_ON_STAND_IN = 100_000, 10_000
"""The stand-in for MongoDB takes minutes where other stores take seconds."""


@pytest.mark.large
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("systems", [*PLACEMENTS[:4], PLACEMENTS[-1]], ids="+".join)
async def test_the_eleven_queries_on_large_data(
    mediator: Service, systems: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = LARGE_ON_STAND_IN if "mongo" in systems else LARGE
    profiles = generate(count, walls=count // 50)
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(rows=10_000_000, seconds=600))
    database = await mediator.put_schema(placed(CLASSES, systems, field_on))
    for name in CLASSES:
        await fill(
            mediator.mediator.data.model,
            mediator.mediator.calls,
            database,
            name,
            profiles.objects[name],
        )
    async with query_client(mediator, database) as client:
        for query in QUERIES:
            body = {**query.body, "limit": 1_000, "allow_scan": True}
            items = await client.all(query.class_name, body)
            assert items == query.answers(profiles), f"query {query.number}"
    await mediator.mediator.control.delete_schema(database)
