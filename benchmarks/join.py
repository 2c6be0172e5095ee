"""A thousand objects with the objects they refer to on another system: a join against N + 1 reads.

Without joins a client requests the objects, and then each object that they refer to. Both go over
HTTP on one connection, on the same data, by httpx in a separate process. A second baseline, which
is harder to outdo, is a client whose requests cost it nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

import httpx
import orjson

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadProcess, SeparateProcess
from app.commands.demo.service import succeed
from benchmarks.harness.report import Measured, Options, Result, medians
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    shared_service,
    state_metrics,
)
from mediator.embedded.port import Kind

__all__ = ["run"]

_OUTER: Final = 1_000
_BAR: Final = 20.0
_PAIRS: Final[tuple[tuple[Kind, Kind], ...]] = (
    ("redis", "postgresql"),
    ("postgresql", "redis"),
    ("postgresql", "mongodb"),
)
_JSON: Final = {"Content-Type": "application/json"}
_BODY: Final[dict[str, Any]] = {
    "limit": _OUTER,
    "join": {"as": "writer", "reference": "author"},
}


async def run(options: Options) -> Measured:
    async with SeparateProcess() as client, LoadProcess() as load, shared_service() as running:
        await state_metrics(running.service)
        results: list[Result] = []
        for outer, inner in _PAIRS:
            if {outer, inner} <= running.servers.keys():
                results += await _measure(options, running, load, client, (outer, inner))
        return Measured(results, await running.service.versions())


async def _measure(
    options: Options,
    running: SharedService,
    load: LoadProcess,
    client: SeparateProcess,
    pair: tuple[Kind, Kind],
) -> list[Result]:
    database = "from_{}_to_{}".format(*pair)
    await _fill(running, database, *pair)
    base = str(running.service.data.base_url)
    measures = {
        side: partial(client.call, _time, fetch, base, database)
        for side, fetch in (("join", _join), ("reads", _one_by_one))
    }
    rounds = 3 if options.quick else 9
    times = await medians(rounds, measures)
    bare = await medians(rounds, _raw(running, load, database))
    name = "{} objects on {} with what they refer to on {}".format(_OUTER, *pair)
    for label, sides in (("httpx", times), ("requests rendered beforehand", bare)):
        options.note(
            f"{name}, {label}: {sides['join'] * 1e3:.0f} ms against {sides['reads'] * 1e3:.0f} ms"
        )
    rates = 1 / bare["join"], 1 / bare["reads"]
    return [
        Result(f"{name}, N + 1 reads by httpx", "1/s", 1 / times["join"], 1 / times["reads"], _BAR),
        Result(f"{name}, N + 1 reads at no cost to the client", "1/s", *rates),
    ]


def _join(client: httpx.Client, database: str) -> list[str]:
    items = client.post(f"{database}/notes/query", json=_BODY).json()["items"]
    return [item["writer"]["name"] for item in items]


def _one_by_one(client: httpx.Client, database: str) -> list[str]:
    items = client.get(f"{database}/notes", params={"limit": _OUTER}).json()["items"]
    people = f"{database}/people"
    return [client.get(f"{people}/{item['author']}").json()["name"] for item in items]


def _time(fetch: Callable[[httpx.Client, str], list[str]], base: str, database: str) -> float:
    """Return the seconds that a client takes to get all names."""
    with httpx.Client(base_url=base, timeout=60) as client:
        client.get(f"{database}/people/p0").raise_for_status()
        started = perf_counter()
        writers = fetch(client, database)
        seconds = perf_counter() - started
    if len(writers) != _OUTER:
        raise Failed("some objects are missing from the answer")
    return seconds


def _raw(
    running: SharedService, load: LoadProcess, database: str
) -> dict[str, Callable[[], Awaitable[float]]]:
    """Return the same measures by a client that only sends and receives."""
    query = render("POST", f"/v1/{database}/notes/query", orjson.dumps(_BODY), _JSON)
    listing = render("GET", f"/v1/{database}/notes?limit={_OUTER}")
    singles = [render("GET", f"/v1/{database}/people/p{number}") for number in range(_OUTER)]

    async def reads() -> float:
        first = await _seconds(running, load, [listing], 1)
        return first + await _seconds(running, load, singles, _OUTER)

    return {"join": partial(_seconds, running, load, [query], 1), "reads": reads}


async def _fill(running: SharedService, database: str, outer: Kind, inner: Kind) -> None:
    classes = {
        "people": {"fields": {"name": {"type": "string"} | field_on(inner)}},
        "notes": {
            "fields": {
                "text": {"type": "string"} | field_on(outer),
                "author": {"type": "reference", "to": "people"} | field_on(outer),
            }
        },
    }
    await running.service.set_schema(database, {"mode": "mixed", "classes": classes})
    numbers = range(_OUTER)
    people = {f"p{number}": {"name": f"Person {number}"} for number in numbers}
    notes = {f"n{number}": {"text": "x", "author": f"p{number}"} for number in numbers}
    await running.service.create(database, {"people": people, "notes": notes})
    sent = running.service.data.post(f"{database}/notes/query", json=_BODY)
    items = (await succeed(sent))["items"]
    if len(items) != _OUTER or any(
        i["writer"] != {"id": i["author"], **people[i["author"]]} for i in items
    ):
        raise Failed("the join does not answer what it should")


async def _seconds(
    running: SharedService, load: LoadProcess, requests: list[bytes], count: int
) -> float:
    return count / (await running.drive(load, LoadLane(requests), 0.5)).rate
