"""The eleven queries of the object mappers through the mediator, against each native driver.

Published mappers answer such queries in about twice the time of the driver below them. The mapping
is compared: the mediator is called in process, as the service calls it. PostgreSQL is also queried
over HTTP, against the fastest driver, with hand-written statements. Both answer the same objects,
or the run fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from http.client import OK
from statistics import median
from typing import Any, Final

import orjson

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from benchmarks.harness.native_queries import HARDER, LIMIT, NATIVE, Native
from benchmarks.harness.profiles import CLASSES, QUERIES, ProfileQuery, Profiles, generate, placed
from benchmarks.harness.report import Measured, Options, Result, medians, timed_s
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    shared_service,
    state_metrics,
)
from benchmarks.harness.wire import Wire
from mediator.embedded.port import Kind
from mediator.query.execution import QueryResult
from mediator.query.parser import parse_query_document

__all__ = ["run"]

_BAR: Final = 2.0
_BAR_OVER_HTTP: Final = 2.5
_SPLIT: Final = "split"


async def run(options: Options) -> Measured:
    data = generate(1_000 if options.quick else 10_000, walls=200 if options.quick else 2_000)
    async with shared_service() as running:
        await state_metrics(running.service)
        results: list[Result] = []
        for kind in running.servers:
            results += await _measure_store(options, running, kind, data)
        results += await _measure_split(options, running, data)
        return Measured(results, await running.service.versions())


async def _measure_store(
    options: Options, running: SharedService, kind: Kind, data: Profiles
) -> list[Result]:
    database = f"profiles_{kind}"
    await _fill(running, database, data, (kind,))
    results = []
    async with AsyncExitStack() as stack:
        native = await _open(stack, NATIVE[kind], running.servers[kind].url)
        await native.load(data)
        results += await _measure_driver(options, running, kind, native, _BAR)
        if kind in HARDER:
            harder = await _open(stack, HARDER[kind], running.servers[kind].url)
            results += await _measure_driver(options, running, kind, harder, None)
            results += await _measure_http(options, running, kind, harder)
    return results


async def _open(stack: AsyncExitStack, make: type[Native], url: str) -> Native:
    native = make()
    await native.open(url)
    stack.push_async_callback(native.close)
    return native


async def _measure_driver(
    options: Options, running: SharedService, kind: Kind, native: Native, bar: float | None
) -> list[Result]:
    measured = [await _compare(options, running, f"profiles_{kind}", native, q) for q in QUERIES]
    pushed = sum(pushed_whole for _, pushed_whole in measured) / len(measured)
    name = f"{kind} against {type(native).__name__.strip('_').lower()}"
    results = _ratios(name, [times for times, _ in measured], bar)
    options.log(f"{name}: median ratio {results[0].figure:.2f}, pushed whole {pushed:.0%}")
    for query, ((mediated, direct), pushed_whole) in zip(QUERIES, measured, strict=True):
        options.log(
            f"  query {query.number}: {mediated * 1e3:.2f} ms against {direct * 1e3:.2f} ms"
            f" ({mediated / direct:.2f}){'' if pushed_whole else ', not pushed whole'}"
        )
    return [*results, Result(f"queries pushed whole, {kind}", "share", pushed)]


async def _measure_http(
    options: Options, running: SharedService, kind: Kind, native: Native
) -> list[Result]:
    """Compare requests over one connection, including the client, with the driver's statements.

    Both end with the objects as dicts, and repeat the same query: the driver then has a prepared
    statement, the service a parsed query.
    """
    wire = Wire("127.0.0.1", running.service.port)
    rounds, times = 5 if options.quick else 21, []
    for query in QUERIES:
        execute = _requesting(wire, f"profiles_{kind}", query)
        ids = [item["id"] for item in await execute()]
        if ids != [row["id"] for row in await native.answer(query.number)]:
            raise Failed(f"query {query.number} over HTTP on {kind}: the answers differ")
        bare = partial(native.answer, query.number)
        times.append(await _medians(rounds, execute, bare))
        options.log(
            f"  query {query.number} over HTTP: {times[-1][0] * 1e3:.2f} ms"
            f" against {times[-1][1] * 1e3:.2f} ms"
        )
    await wire.aclose()
    return _ratios(f"{kind} over HTTP against asyncpg", times, _BAR_OVER_HTTP)


def _ratios(name: str, times: Sequence[tuple[float, float]], bar: float | None) -> list[Result]:
    ratio = median(ours / theirs for ours, theirs in times)
    ours, bare = (median(pair[side] for pair in times) for side in (0, 1))
    return [
        Result(f"ratio of times, median query, {name}", "times", ratio, None, bar, True),
        Result(f"time of the median query, {name}", "ms", ours * 1e3, bare * 1e3, None, True),
    ]


def _requesting(
    wire: Wire, database: str, query: ProfileQuery
) -> Callable[[], Awaitable[list[dict[str, Any]]]]:
    body = orjson.dumps({**query.body, "limit": LIMIT, "allow_scan": True})
    target = f"/v1/{database}/{query.class_name}/query"
    request = render("POST", target, body, {"Content-Type": "application/json"})

    async def execute() -> list[dict[str, Any]]:
        reply = await wire.send(request)
        if reply.status != OK:
            raise Failed(f"query {query.number} over HTTP: {reply.content.decode()}")
        items: list[dict[str, Any]] = orjson.loads(reply.content)["items"]
        return items

    return execute


async def _measure_split(options: Options, running: SharedService, data: Profiles) -> list[Result]:
    await _fill(running, _SPLIT, data, tuple(running.servers))
    times = []
    for query in QUERIES:
        execute = _querying(running, _SPLIT, query)
        _check(query, data, await execute())
        times.append(median([await timed_s(execute) for _ in range(3 if options.quick else 7)]))
        options.log(f"split, query {query.number}: {times[-1] * 1e3:.2f} ms")
    return [Result("median query, classes split over the systems", "ms", median(times) * 1e3)]


async def _fill(
    running: SharedService, database: str, data: Profiles, systems: tuple[Kind, ...]
) -> None:
    classes = placed(CLASSES, systems, field_on)
    await running.service.set_schema(database, {"mode": "mixed", "classes": classes})
    await running.service.create(database, data.objects)
    await running.service.caught_up()  # otherwise the relay works on the same records


def _querying(
    running: SharedService, database: str, query: ProfileQuery
) -> Callable[[], Awaitable[QueryResult]]:
    schema = running.plane.model.databases[database].schema
    body = {**query.body, "limit": LIMIT, "allow_scan": True}

    async def execute() -> QueryResult:
        # Parsing the query is part of the mapping.
        read = parse_query_document(body, schema, query.class_name)
        return await running.plane.query(read.query)

    return execute


async def _compare(
    options: Options, running: SharedService, database: str, native: Native, query: ProfileQuery
) -> tuple[tuple[float, float], bool]:
    execute = _querying(running, database, query)
    answer = await execute()
    ids = [item.outcome.id for item in answer.items]
    bare = [row["id"] for row in await native.answer(query.number)]
    if ids != bare:
        raise Failed(f"query {query.number} on {database}: the answers differ")
    rounds, plan = 5 if options.quick else 21, answer.plan
    pushed_whole = plan.residual is None and (plan.joined_filter is None or plan.semi_joins.exact)
    return await _medians(rounds, execute, partial(native.answer, query.number)), pushed_whole


async def _medians(
    rounds: int, execute: Callable[[], Awaitable[object]], bare: Callable[[], Awaitable[object]]
) -> tuple[float, float]:
    """Return the median times of a query, ours and the driver's (seconds)."""
    measures = {"ours": partial(timed_s, execute), "bare": partial(timed_s, bare)}
    times = await medians(rounds, measures)
    return times["ours"], times["bare"]


def _check(query: ProfileQuery, data: Profiles, answer: QueryResult) -> None:
    expected: Sequence[Any] = query.answers(data)[:LIMIT]
    if [item.outcome.id for item in answer.items] != [item["id"] for item in expected]:
        raise Failed(f"query {query.number}: the answer is wrong")
