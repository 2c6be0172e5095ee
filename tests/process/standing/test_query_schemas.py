"""A process executes and creates standing queries on a schema that it has not seen yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.base.clock import SystemClock
from mediator.data_plane.port import DataPlane
from mediator.standing.context import HolderContext
from mediator.standing.holder import StandingHolder
from mediator.standing.service import StandingQueries
from tests.faults.conditions import eventually
from tests.process.late_plane import LatePlane, holding
from tests.process.service import Service, field_on
from tests.process.standing.bench import Q1, Bench, bench_on

WITH_NAME: Final = {"fields": {"name": field_on("postgres")}}
OLD: Final = {"things": WITH_NAME, "labels": WITH_NAME}
WITH_SIZE: Final = {"fields": {**WITH_NAME["fields"], "size": field_on("postgres", "integer")}}
NEW: Final = {**OLD, "things": WITH_SIZE, "parts": WITH_NAME}


def query_over(class_name: str, field: str, stream: str, attribute: str) -> dict[str, Any]:
    """Return a query over a class and a stream."""
    return {
        "relations": {"c": {"class": class_name}, "s": {"stream": stream}},
        "predicates": [[f"c.{field}", f"s.{attribute}"]],
        "window_s": 600,
    }


@pytest.fixture
async def bench(started: Service) -> AsyncIterator[Bench]:
    async with bench_on(started, OLD) as opened:
        yield opened


def late_context(bench: Bench, plane: LatePlane) -> HolderContext:
    """Return the holder context of the late process."""
    mediator = bench.service.mediator
    shared, subscriptions = mediator.coordination, mediator.changes.subscriptions
    assert shared is not None
    assert subscriptions is not None
    return HolderContext(
        cast(DataPlane, plane),
        subscriptions,
        shared.event_streams,
        shared.standing_results,
        shared.leases,
        "late",
        SystemClock(),
    )


@asynccontextmanager
async def hold_queries(context: HolderContext, database_id: str) -> AsyncIterator[None]:
    """Hold the queries of a database before it has any."""
    run = StandingHolder(context, database_id).run()
    async with holding(context.leases, f"standing:{database_id}", run):
        yield


async def test_queries_over_a_new_class_and_a_new_field_are_not_stopped(
    bench: Bench,
) -> None:
    plane = LatePlane(bench.service.mediator.data)
    async with hold_queries(late_context(bench, plane), bench.id):
        await bench.ready(Q1)
        plane.answers = False
        await bench.service.mediator.control.set_schema(bench.database, {"classes": NEW})
        queries = [
            await bench.create(query_over("parts", "name", "r", "a")),
            await bench.create(query_over("things", "size", "r", "a")),
        ]
        plane.answers = True
        for query in queries:
            await eventually(lambda query=query: bench.has_state(query, "ready"))  # type: ignore[misc]


async def test_a_cycle_through_a_query_over_a_new_field_is_refused(bench: Bench) -> None:
    plane = LatePlane(bench.service.mediator.data)
    await bench.service.mediator.control.set_schema(bench.database, {"classes": NEW})
    sizes = {"stream": "s", "values": {"a": "s.a", "b": "c.size"}}
    await bench.create({**query_over("things", "size", "r", "a"), "into": sizes})
    names = {"class": "things", "values": {"name": "c.name"}}
    back = {**query_over("labels", "name", "s", "b"), "into": names}
    api = DataApi(
        cast(DataPlane, plane),
        DataOptions(cursor_key=b"key"),
        lambda _: None,
        DataServices(standing=StandingQueries(late_context(bench, plane))),
    )
    base = f"http://localhost/v1/{bench.database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url=base) as client:
        answer = await client.post("standing-queries", json=back)
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/into/class"
