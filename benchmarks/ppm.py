"""Polyglot placement against one database: hit counters of a newspaper.

See docs/papers/ppm.md, section 3.

The same service serves the same schema three times: placed by the needs of its nodes, wholly on
PostgreSQL, and wholly on the system that speaks MongoDB's protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final, Literal

from app.commands.demo.failed import Failed
from app.commands.demo.load import LoadLane, LoadProcess, LoadResult
from app.commands.demo.newspaper import DECLARED, SCHEMA, affordable, objects, wholly_on
from app.commands.demo.rounds import interleaved
from app.commands.demo.service import RequestFailed, Service, portolan
from app.commands.demo.workload import batched_hits, drive, single_hits, top_ten, total_hits
from benchmarks.harness.report import Measured, Options, Result, per_second

__all__ = ["run"]

_MIXED: Final = "news"
_SINGLE_SYSTEMS: Final[Mapping[str, tuple[str, str]]] = {
    "news_postgresql": ("PostgreSQL", "joins"),
    "news_mongodb": ("the MongoDB-protocol server", "data_volume_scalability"),
}
_BASELINE: Final = "news_postgresql"
_WRITERS: Final = 4
_READ_EVERY_S: Final = 0.02
_READ_BAR_MS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Work:
    """A way of counting hits, and its bar."""

    name: str
    lane: Callable[[str, int], LoadLane]
    bar: float


_WORK: Final = (_Work("single hits", single_hits, 1.5), _Work("batched hits", batched_hits, 3.0))


@dataclass(frozen=True, slots=True)
class _Harness:
    """The setting for the measurements of one durability."""

    options: Options
    service: Service
    load: LoadProcess
    durability: Literal["second", "full"]

    async def rate(self, lane: LoadLane) -> LoadResult:
        seconds = 0.8 if self.options.quick else 3.0
        await self.service.caught_up()
        (tally,) = await drive(self.load, self.service, [lane], seconds)
        return tally

    @property
    def rounds(self) -> int:
        return 3 if self.options.quick else 7


async def run(options: Options) -> Measured:
    """Measure at a durability of one second, then with every write on disk."""
    results: list[Result] = []
    versions: dict[str, str] = {}
    async with LoadProcess() as load:
        for durability in _durabilities(options):
            options.log(f"Starting the service, durability {durability} …")
            async with portolan(durability) as service:
                harness = _Harness(options, service, load, durability)
                results += await _measure(harness)
                versions |= await service.versions()
    return Measured(results, versions)


def _durabilities(options: Options) -> tuple[Literal["second", "full"], ...]:
    if not options.quick:
        return ("second", "full")
    options.log("Quick: the rows of full durability are left to a whole run.")
    return ("second",)


async def _measure(harness: _Harness) -> list[Result]:
    databases = await _set_up(harness)
    results = []
    for work in _WORK:
        results += await _compare(harness, work, databases)
    if harness.durability == "second":
        results.append(await _top_ten(harness, results[0].figure))
    return results


async def _set_up(harness: _Harness) -> list[str]:
    """Set the schemas and load the newspaper; returns the databases that could be placed."""
    systems = await harness.service.declare(DECLARED)
    offered = {capability for system in systems for capability in system["capabilities"]}
    mixed, dropped = affordable(SCHEMA, offered)
    for feature in dropped:
        harness.options.log(f"Left out: {feature}.")
    tied = {
        name: wholly_on(SCHEMA, needs)
        for name, (_, needs) in _SINGLE_SYSTEMS.items()
        if needs in offered
    }
    placed = []
    for database, document in {_MIXED: mixed, **tied}.items():
        try:
            change = await harness.service.set_schema(database, document)
        except RequestFailed as error:
            if database in (_MIXED, _BASELINE):
                raise
            harness.options.log(f"{database} is not measured: {error.detail}")
            continue
        await harness.service.create(database, objects(seed=harness.options.seed))
        harness.options.log(f"{database}: {_summary_of(change['placements'])}")
        placed.append(database)
    return placed


def _summary_of(placements: Mapping[str, Mapping[str, str]]) -> str:
    nodes = ("articles", "articles.hits", "people", "comments")
    return ", ".join(f"{node} on {placements[node]['system']}" for node in nodes)


async def _compare(harness: _Harness, work: _Work, databases: list[str]) -> list[Result]:
    before = {name: await total_hits(harness.service, name) for name in databases}
    targets = {
        name: partial(harness.rate, work.lane(name, harness.options.seed)) for name in databases
    }
    tallies = await interleaved(harness.rounds, targets)
    for name in databases:
        await _check(harness.service, name, before[name], tallies[name])
    rates = {name: median(tally.rate for tally in tallies[name]) for name in databases}
    harness.options.log(f"{work.name}: {per_second(rates)}")
    return [_result(harness, work, name, rates) for name in databases if name != _MIXED]


def _result(harness: _Harness, work: _Work, other: str, rates: Mapping[str, float]) -> Result:
    name = (
        f"{work.name} against all on {_SINGLE_SYSTEMS[other][0]}, durability {harness.durability}"
    )
    # The bar is for stores that may lose a second; with every write on disk there is none.
    has_bar = other == _BASELINE and harness.durability == "second"
    return Result(name, "updates/s", rates[_MIXED], rates[other], work.bar if has_bar else None)


async def _check(service: Service, database: str, before: int, tallies: list[LoadResult]) -> None:
    """Fail if a counter lost or doubled an acknowledged hit: then its rate means nothing."""
    counted = await total_hits(service, database) - before
    acknowledged = sum(tally.acknowledged for tally in tallies)
    if counted != acknowledged:
        raise Failed(f"{database} counted {counted} of {acknowledged} acknowledged hits")


async def _top_ten(harness: _Harness, max_rate: float) -> Result:
    """Read at a steady pace while hits are counted at half the maximum rate."""
    every_s = _WRITERS / (max_rate / 2)
    lanes = [
        top_ten(_MIXED, every_s=_READ_EVERY_S),
        single_hits(_MIXED, harness.options.seed, _WRITERS, every_s),
    ]
    seconds = 3.0 if harness.options.quick else 10.0
    await harness.service.caught_up()
    reads, writes = await drive(harness.load, harness.service, lanes, seconds)
    p99_ms = reads.percentile(0.99) * 1000
    harness.options.log(
        f"top ten: {reads.rate:,.0f} reads/s under {writes.rate:,.0f} writes/s,"
        f" median {reads.percentile(0.5) * 1000:.1f} ms, p99 {p99_ms:.1f} ms"
    )
    name = "top ten under half the highest write load, p99, durability second"
    return Result(name, "ms", p99_ms, bar=_READ_BAR_MS, small_is_good=True)
