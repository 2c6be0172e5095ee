"""The gain of coherent caching, and whether any read is too stale: YCSB through a real Varnish.

32 loops first query the service itself, for records of an uncacheable class, each as soon as it
has its reply. Then 32 coherent clients start as many operations in a second, for cacheable records:
both sides carry the same load, so their latencies can be compared. The clients share only the
Varnish: each has its own filter and copies. A client is the unmodified
`sketch.client.CoherentClient`; Varnish runs with the shipped rules, and records have the default
TTL. A relay before the service delays all requests. Finally each client reads and writes as fast as
it gets replies. The staleness of all reads is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from http.client import BAD_REQUEST
from typing import Final, NamedTuple

import httpx
import orjson

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from app.commands.demo.service import Service
from app.settings.main import CacheSettings
from benchmarks.harness.delay import delayed
from benchmarks.harness.instances import instance_on_embedded
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.staleness import Staleness
from benchmarks.harness.varnish import varnish
from benchmarks.harness.wire import Wire
from benchmarks.harness.ycsb import A, B, Tally, Workload, drive
from sketch.client import CoherentClient
from sketch.protocol.wire import decode, encode

__all__ = ["run"]

DELTA_S: Final = 1.0
CLIENTS: Final = 32
_IDS: Final = tuple(f"r{number}" for number in range(1_000))
_UNCACHED: Final = 5_000
_BATCH: Final = 100
_BAR: Final = 0.1
_HOST: Final = "127.0.0.1"
_CLASS: Final = "records"
_UPDATE: Final = {"Content-Type": "application/vnd.portolan.update+json"}
_ADD: Final = orjson.dumps({"sequence": {"inc": 1}})


@dataclass(frozen=True, slots=True)
class _Scenario:
    """A scenario of the benchmark: a workload, and the distance of the origin."""

    workload: Workload
    round_trip_s: float
    reads: int

    @property
    def name(self) -> str:
        where = f"{self.round_trip_s * 1000:g} ms from the origin" if self.round_trip_s else "near"
        return f"YCSB {self.workload.name} {where}"


async def run(options: Options) -> Measured:
    caching = CacheSettings(sketch="redis", sketch_valid_s=60.0)
    async with instance_on_embedded(caching) as service:
        await _set_up(service)
        results, staleness = [], Staleness(DELTA_S)
        for scenario in _scenarios(options):
            results += await _measure(service, scenario, staleness, options)
        results += [
            Result("reads beyond the bound of 1 s", "reads", staleness.violations, None, 0, True),
            Result("reads judged", "reads", staleness.reads),
            await _without_test(service, options),
        ]
        return Measured(results, await service.versions())


def _scenarios(options: Options) -> list[_Scenario]:
    scale = 0.01 if options.quick else 10 if options.full else 1
    return [
        _Scenario(workload, round_trip_s, max(1_000, round(reads * scale)))
        for workload, reads in ((B, 100_000), (A, 10_000))
        for round_trip_s in (0.01, 0.0)
    ]


async def _set_up(service: Service) -> None:
    await service.declare({"postgresql": ("joins",)})
    fields = {"sequence": {"type": "integer", "default": 0}, "body": {"type": "string"}}
    for database, visibility in (("cached", "public"), ("uncached", "none")):
        classes = {_CLASS: {"cache": {"visibility": visibility}, "fields": fields}}
        schema = {"annotations": [{"require": "joins"}], "mode": "mixed", "classes": classes}
        await service.set_schema(database, schema)
        for start in range(0, len(_IDS), _BATCH):
            ids = _IDS[start : start + _BATCH]
            await service.create(database, {_CLASS: {id_: {"body": "x" * 1_000} for id_ in ids}})


async def _measure(
    service: Service, scenario: _Scenario, staleness: Staleness, options: Options
) -> list[Result]:
    with delayed(service.port, scenario.round_trip_s) as origin:
        plain = await _uncached(origin, scenario, options)
        async with _clients(origin, Wire) as clients:
            cached, shares = await _cached(clients, scenario, staleness, options, plain.rate)
            fast, _ = await _cached(clients, scenario, staleness, options, None)
    name, plain_ms, cached_ms = scenario.name, plain.mean_s * 1000, cached.mean_s * 1000
    options.log(
        f"{name}: {cached_ms:.3f} ms against {plain_ms:.3f} ms at {plain.rate:,.0f} and"
        f" {cached.rate:,.0f} operations/s, {shares.without_origin:.1%} without the origin,"
        f" {shares.renewed:.3f} renewed for each; {fast.rate:,.0f} operations/s as fast as it goes;"
        f" {staleness.violations} violations"
    )
    bar = _BAR if scenario.workload is B and scenario.round_trip_s else None
    rates = "operations/s", fast.rate, plain.rate
    return [
        Result(f"mean read, {name}, cached against not", "ms", cached_ms, plain_ms, bar, True),
        Result(f"reads answered without the origin, {name}", "share", shares.without_origin),
        Result(f"objects renewed ahead for each read, {name}", "objects", shares.renewed),
        Result(f"as fast as it goes, {name}, cached against not", *rates),
    ]


async def _uncached(origin: int, scenario: _Scenario, options: Options) -> Tally:
    wire = Wire(_HOST, origin)
    staleness = Staleness(DELTA_S)
    callers = [_Plain(wire)] * CLIENTS
    for id_ in _IDS:
        await callers[0].read(id_)
    tally = await drive(callers, scenario.workload, _IDS, _UNCACHED, staleness, options.seed)
    await wire.aclose()
    if staleness.violations:
        raise Failed("the service itself answered too old a value")
    return tally


class _Shares(NamedTuple):
    """The share of reads answered without the origin, and the objects renewed for each read."""

    without_origin: float
    renewed: float


async def _cached(
    clients: Sequence[CoherentClient],
    scenario: _Scenario,
    staleness: Staleness,
    options: Options,
    rate: float | None,
) -> tuple[Tally, _Shares]:
    callers = [_Coherent(client) for client in clients]
    await asyncio.gather(*(_warm(client) for client in clients))
    sent, renewed = _requests_of(clients)
    tally = await drive(
        callers, scenario.workload, _IDS, scenario.reads, staleness, options.seed, rate
    )
    sent_since, renewed_since = _requests_of(clients)
    reads = len(tally.latencies)
    return tally, _Shares(1 - (sent_since - sent) / reads, (renewed_since - renewed) / reads)


async def _warm(client: CoherentClient) -> None:
    """Read everything once: first misses say nothing about a cache."""
    for id_ in _IDS:
        await client.get(_CLASS, id_)


async def _without_test(service: Service, options: Options) -> Result:
    """Show that the check works, by clients whose filters are always empty."""
    staleness = Staleness(DELTA_S)
    async with _clients(service.port, _Blind) as clients:
        callers = [_Coherent(client) for client in clients]
        reads = 10_000 if options.quick else 50_000
        await drive(callers, B, _IDS, reads, staleness, options.seed)
    name = f"of {staleness.reads:,} reads that test no filter, those beyond the bound"
    return Result(name, "reads", staleness.violations, None, 1)


@contextlib.asynccontextmanager
async def _clients(
    origin: int, wire: Callable[[str, int], Wire]
) -> AsyncIterator[list[CoherentClient]]:
    async with contextlib.AsyncExitStack() as stack:
        cache = await stack.enter_async_context(varnish(f"http://{_HOST}:{origin}"))
        at = httpx.URL(cache.url)
        assert at.port is not None
        yield [
            await stack.enter_async_context(
                CoherentClient(
                    cache.url, "cached", delta_s=DELTA_S, transport=wire(at.host, at.port)
                )
            )
            for _ in range(CLIENTS)
        ]


def _requests_of(clients: Sequence[CoherentClient]) -> tuple[int, int]:
    """Return how many requests for single records reached the origin, and the renewed records.

    Requests for many records, for which no read waits, are counted by their records.
    """
    statistics = [client.statistics for client in clients]
    sent = sum(counts.fetches + counts.revalidations - counts.shared for counts in statistics)
    return sent, sum(counts.renewed for counts in statistics)


class _Coherent:
    def __init__(self, client: CoherentClient) -> None:
        self._client = client

    async def read(self, id_: str) -> int:
        value = (await self._client.get(_CLASS, id_)).value
        assert value is not None
        return int(value["sequence"])

    async def add(self, id_: str) -> int:
        written = await self._client.patch(_CLASS, id_, {"sequence": {"inc": 1}}, form="update")
        return int(written.value["sequence"])


class _Plain:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def read(self, id_: str) -> int:
        return await self._count(render("GET", f"/v1/uncached/{_CLASS}/{id_}"))

    async def add(self, id_: str) -> int:
        return await self._count(render("PATCH", f"/v1/uncached/{_CLASS}/{id_}", _ADD, _UPDATE))

    async def _count(self, request: bytes) -> int:
        reply = await self._wire.send(request)
        if reply.status >= BAD_REQUEST:
            raise Failed(f"the service answered {reply.status}")
        return int(orjson.loads(reply.content)["sequence"])


class _Blind(Wire):
    """A wire on which every filter arrives empty: no client finds a key in it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path.endswith("/sketch") and response.is_success:
            sketch = decode(response.content)
            bits = bytes(len(sketch.snapshot.bits))
            empty = replace(sketch.snapshot, bits=bits, revalidate_all=False)
            return httpx.Response(200, content=encode(replace(sketch, snapshot=empty)))
        return response
