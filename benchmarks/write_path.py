"""What coherence costs: writes with the cache sketch against without, reads against a bare handler.

Two replicas of the service run in one process on the same servers and the same databases; one has a
sketch, the other has none. They are loaded in turn, so that both have the machine to themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.commands.demo.load import LoadProcess
from app.commands.demo.service import Service
from app.service.container import on_embedded
from app.service.serving import serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from benchmarks.harness.comparison import (
    CONNECTIONS,
    Harness,
    Target,
    bare_handlers,
    median_rates,
    mediated,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import SharedService, shared_service
from mediator.embedded.port import Kind

__all__ = ["run"]

_WRITE_BAR: Final = 0.85
_READ_BAR: Final = 0.6
_MORE_ROUNDS: Final = 2
"""Than other benchmarks have: what is distinguished here is less than what a machine varies by."""

_CACHED: Final = {"visibility": "public", "max_ttl_s": 60}


async def run(options: Options) -> Measured:
    """Measure PUT and PATCH with and without the sketch, and GET against bare handlers."""
    async with LoadProcess() as load, shared_service(CacheSettings()) as running:
        await running.tie(_CACHED)
        settings = on_embedded(MediatorSettings(), running.servers)
        http = HttpSettings(port=0, admin_port=0, log_level="warning")
        harness = Harness(options, load)
        results: list[Result] = []
        async with (
            serving(http, settings) as other,
            Service.at(other.addresses.data, other.addresses.admin) as without,
            bare_handlers(running) as bare,
        ):
            for kind in running.servers:
                results += await _writes(harness, running, without, kind)
                results += await _reads(harness, running, kind, bare[kind])
        return Measured(results, await running.service.versions())


async def _writes(
    harness: Harness, running: SharedService, without: Service, kind: Kind
) -> list[Result]:
    targets = {"on": mediated(running.service, kind), "off": mediated(without, kind)}
    await targets["on"].fill()
    results = []
    for method in ("PUT", "PATCH"):
        for connections in CONNECTIONS:
            name = f"{method} on {kind}, {connections} connections, sketch on against off"
            rates = await _rates(harness, name, targets, method, connections)
            results.append(Result(name, "requests/s", rates["on"], rates["off"], _WRITE_BAR))
    return results


async def _reads(
    harness: Harness, running: SharedService, kind: Kind, bare: Mapping[str, Target]
) -> list[Result]:
    for target in bare.values():
        await target.fill()
    targets = {"on": mediated(running.service, kind), **bare}
    results = []
    for connections in CONNECTIONS:
        name = f"GET on {kind}, {connections} connections, sketch on against"
        rates = await _rates(harness, name, targets, "GET", connections)
        results += [
            Result(f"{name} {way}", "requests/s", rates["on"], rates[way], bar)
            for way in bare
            for bar in [None if way == "asyncpg" else _READ_BAR]
        ]
    return results


async def _rates(
    harness: Harness, name: str, targets: Mapping[str, Target], method: str, connections: int
) -> dict[str, float]:
    rates = median_rates(await harness.tallies(targets, method, connections, _MORE_ROUNDS))
    summary = ", ".join(f"{way} {rate:,.0f}/s" for way, rate in rates.items())
    harness.options.note(f"{name}: {summary}")
    return rates
