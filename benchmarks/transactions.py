"""Transactions: abort rates by the number of reads, with cached reads against without.

Clients in a closed loop read some objects of all systems one after the other, over a network with
an added round trip, and add to the first of them if nothing that they read has changed. Reads that
take a round trip each give other clients time to commit first; cached ones take none, but may be
outdated: the paper of the Cache Sketch leaves open which of the two aborts more. The classes of one
database may be cached, those of the other may not; all else is equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from time import perf_counter
from typing import Any, Final

import httpx

from app.commands.demo.service import Service
from app.settings.main import CacheSettings
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import REQUIREMENT, declare_requirements, shared_service
from mediator.embedded.port import Kind
from sketch.client import CoherentClient, TransactionAborted

__all__ = ["run"]

_LENGTHS: Final = (1, 2, 4, 8, 16, 32)
_CLIENTS: Final = 8
_OBJECTS: Final = 300
_SECONDS: Final = (1.5, 15.0)
_ROUND_TRIP_S: Final = 0.01
_DELTA_S: Final = 1.0
_SKEW: Final = 0.7
"""Exponent of Zipf's law."""

_DATABASES: Final = {"cached": {"visibility": "public"}, "uncached": {"visibility": "none"}}


@dataclass(slots=True)
class _Tally:
    """The outcomes of the transactions of one length."""

    committed: int = 0
    aborted: int = 0
    seconds: float = 0.0

    @property
    def abort_rate(self) -> float:
        return self.aborted / max(self.committed + self.aborted, 1)

    @property
    def rate(self) -> float:
        return self.committed / self.seconds


class _Distant(httpx.AsyncHTTPTransport):
    """A network with an added round trip, once it is switched on."""

    round_trip_s = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self.round_trip_s)
        return await super().handle_async_request(request)


@dataclass(frozen=True, slots=True)
class _Load:
    """Clients of one database, and the objects that they use, the most popular first."""

    clients: Sequence[CoherentClient]
    objects: Sequence[tuple[str, str]]
    draw: Random


async def run(options: Options) -> Measured:
    results: list[Result] = []
    seconds = _SECONDS[not options.quick]
    async with shared_service(CacheSettings()) as running, AsyncExitStack() as stack:
        objects = await _prepare(running.service, options.seed)
        loads = {
            database: await _load(stack, running.service, database, objects, options.seed)
            for database in _DATABASES
        }
        for length in _LENGTHS:
            tallies = {name: await _measure(load, length, seconds) for name, load in loads.items()}
            results += _results(options, length, tallies["cached"], tallies["uncached"])
        return Measured(results, await running.service.versions())


def _results(options: Options, length: int, cached: _Tally, uncached: _Tally) -> Sequence[Result]:
    name = f"{length} objects read, cached against not"
    options.log(
        f"{name}: {cached.abort_rate:.1%} against {uncached.abort_rate:.1%} aborted,"
        f" {cached.rate:.0f}/s against {uncached.rate:.0f}/s committed"
    )
    return (
        Result(f"{name}: aborted", "share", cached.abort_rate, uncached.abort_rate),
        Result(f"{name}: committed", "transactions/s", cached.rate, uncached.rate),
    )


async def _prepare(service: Service, seed: int) -> list[tuple[str, str]]:
    """Set up objects on all systems; return them in an order that mixes systems."""
    systems = await declare_requirements(service)
    kinds = sorted({system["kind"] for system in systems})
    locations = [(kinds[i % len(kinds)], f"o{i}") for i in range(_OBJECTS)]
    for database, cache in _DATABASES.items():
        classes = {kind: _class(kind, cache) for kind in kinds}
        await service.set_schema(database, {"mode": "mixed", "classes": classes})
        for kind in kinds:
            objects: dict[str, dict[str, Any]] = {
                id_: {"n": 0} for k, id_ in locations if k == kind
            }
            await service.create(database, {kind: objects})
    Random(seed).shuffle(locations)
    return locations


def _class(kind: Kind, cache: dict[str, str]) -> dict[str, Any]:
    fields = {"n": {"type": "float", "default": 0}}
    return {"annotations": [{"require": REQUIREMENT[kind]}], "cache": cache, "fields": fields}


async def _load(
    stack: AsyncExitStack,
    service: Service,
    database: str,
    objects: Sequence[tuple[str, str]],
    seed: int,
) -> _Load:
    """Connect clients, each of which has read all objects once."""
    clients = []
    for _ in range(_CLIENTS):
        distant = _Distant()
        address = f"http://{service.host}:{service.port}"
        client = CoherentClient(address, database, delta_s=_DELTA_S, transport=distant)
        clients.append(await stack.enter_async_context(client))
        await asyncio.gather(*(client.get(*key) for key in objects))
        distant.round_trip_s = _ROUND_TRIP_S
    return _Load(clients, objects, Random(seed))


async def _measure(load: _Load, length: int, seconds: float) -> _Tally:
    tally, started = _Tally(), perf_counter()
    end = started + seconds
    await asyncio.gather(*(_work(load, client, length, tally, end) for client in load.clients))
    tally.seconds = perf_counter() - started
    return tally


async def _work(
    load: _Load, client: CoherentClient, length: int, tally: _Tally, end: float
) -> None:
    weights = list(accumulate(rank**-_SKEW for rank in range(1, len(load.objects) + 1)))
    while perf_counter() < end:
        keys: dict[tuple[str, str], None] = {}
        while len(keys) < length:
            [key] = load.draw.choices(load.objects, cum_weights=weights)
            keys[key] = None
        try:
            await _add_to_first(client, list(keys))
        except TransactionAborted:
            tally.aborted += 1
        else:
            tally.committed += 1


async def _add_to_first(client: CoherentClient, locations: Sequence[tuple[str, str]]) -> None:
    async with client.transaction() as transaction:
        values = [(await transaction.get(*key)).value for key in locations]
        assert values[0] is not None
        transaction.patch(*locations[0], {"n": values[0]["n"] + 1})
