"""The cost of coherence: writes with the cache sketch against without, reads against a handler.

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
    against_bare_handlers,
    bare_handlers,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import SharedService, database_on, shared_service
from mediator.embedded.port import Kind

__all__ = ["run"]

_WRITE_BAR: Final = 0.85
_READ_BAR: Final = 0.6
_EXTRA_ROUNDS: Final = 2
"""More rounds than in other benchmarks: the differences are below the machine's variations."""

_CACHED: Final = {"visibility": "public", "max_ttl_s": 60}


async def run(options: Options) -> Measured:
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
    services = {"on": running.service, "off": without}
    targets = {name: Target.of(at, database_on(kind)) for name, at in services.items()}
    await targets["on"].fill()
    results = []
    for method in ("PUT", "PATCH"):
        for connections in CONNECTIONS:
            name = f"{method} on {kind}, {connections} connections, sketch on against off"
            rates = await harness.rates(name, targets, method, connections, _EXTRA_ROUNDS)
            results.append(Result(name, "requests/s", rates["on"], rates["off"], _WRITE_BAR))
    return results


async def _reads(
    harness: Harness, running: SharedService, kind: Kind, bare: Mapping[str, Target]
) -> list[Result]:
    for target in bare.values():
        await target.fill()
    targets = {"on": Target.of(running.service, database_on(kind)), **bare}
    results = []
    for connections in CONNECTIONS:
        name = f"GET on {kind}, {connections} connections, sketch on against"
        rates = await harness.rates(name, targets, "GET", connections, _EXTRA_ROUNDS)
        results += against_bare_handlers(name, rates, "on", _READ_BAR)
    return results
