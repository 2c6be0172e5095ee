"""The steps of the demo, over HTTP like any other client, and its tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

from app.commands.demo.failed import Failed
from app.commands.demo.load import LoadLane, LoadProcess, LoadResult
from app.commands.demo.newspaper import DECLARED, SCHEMA, affordable, objects, wholly_on
from app.commands.demo.rounds import interleaved
from app.commands.demo.service import RequestFailed, Service, succeed
from app.commands.demo.workload import batched_hits, drive, single_hits, top_ten
from app.service.interruption import Interrupted, interruptible
from app.service.serving import Serving, serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings

__all__ = ["DemoOptions", "run_demo"]

MIXED: Final = "news"
SINGLE: Final = "news_single"
_SINGLE_CAPABILITY: Final = "joins"
_ROUNDS: Final = 3
_NONE: Final = "-"
_SEED: Final = 1
_READERS: Final = 4
_STORES_WITHIN_S: Final = 60
"""Seconds that stores get to start with the data of an earlier demo."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The same work on the placed database, and on a database wholly on one system.

    Rates are operations per second, latencies the 99th percentile in seconds.
    """

    work: str
    placed: float
    single: float
    placed_p99_s: float
    single_p99_s: float


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo.

    Attributes:
        seconds: How long the newspaper is read and its hits counted, in total.
        once: Whether the service ends with the demo.
    """

    seconds: float = 15.0
    once: bool = False


async def run_demo(
    http: HttpSettings, settings: MediatorSettings, options: DemoOptions, console: Console
) -> None:
    """Start the embedded service, show what it does, and run it until a signal.

    Raises `Failed` if something that the demo needs was refused.
    """
    quiet = http.model_copy(update={"log_level": "warning"})
    console.print(
        "[bold]Portolan[/] starts Redis, PostgreSQL and a server that speaks MongoDB's protocol"
        f" in {escape(str(settings.data_dir))}, and examines what each can do."
        " The first time takes longest."
    )
    with console.status("Starting, probing, calibrating …") as status:
        async with serving(quiet, settings, CacheSettings()) as running:
            status.stop()
            try:
                async with interruptible(running.ended):
                    await _Demo(console, running, options).run()
                if not options.once:
                    _invite(console, running)
                    await running.ended.wait()
            except Interrupted:
                pass
            console.print("Stopping the service and its stores.")


@dataclass(frozen=True, slots=True)
class _Demo:
    _console: Console
    _running: Serving
    _options: DemoOptions

    def _print(self, content: str | Table) -> None:
        self._console.print(content)

    async def run(self) -> None:
        addresses = self._running.addresses
        for server in self._running.missing:
            reason = escape(f"{server.reason}. {server.remedy}")
            self._print(f"[yellow]Without {server.kind}:[/] {reason}")
        async with Service.at(addresses.data, addresses.admin) as service:
            await self._wait(service)
            systems = await self._declare(service)
            self._print(_systems_table(systems))
            databases = await self._place(service, systems)
            await self._load(service, databases)
            self._print(_placements_table(await _explanations(service)))
            comparisons = await self._drive(service, databases)
            self._print(_throughput_table(comparisons, [s["findings"]["server"] for s in systems]))
            await self._top_ten(service)

    async def _wait(self, service: Service) -> None:
        """Wait for stores that are still loading the data of an earlier demo."""
        for _ in range(_STORES_WITHIN_S):
            disconnected = [
                s["name"] for s in await service.systems() if s["state"] == "not connected"
            ]
            if not disconnected:
                return
            await asyncio.sleep(1)
        self._print(
            f"[yellow]Not connected:[/] {', '.join(disconnected)}; the demo goes on without."
        )

    async def _declare(self, service: Service) -> list[dict[str, Any]]:
        for kind, capabilities in DECLARED.items():
            self._print(f"The operator declares of {kind}: {', '.join(capabilities)}.")
        systems = await service.declare(DECLARED)
        return [system for system in systems if system["findings"]]

    async def _place(self, service: Service, systems: list[dict[str, Any]]) -> list[str]:
        """Set the schema twice: placed by its requirements, and bound to one system."""
        capabilities = {capability for system in systems for capability in system["capabilities"]}
        mixed, dropped = affordable(SCHEMA, capabilities)
        for line in dropped:
            self._print(f"[yellow]Different here:[/] {line}; the remaining requirements place it.")
        schemas = {MIXED: mixed, SINGLE: wholly_on(SCHEMA, _SINGLE_CAPABILITY)}
        for database, document in schemas.items():
            try:
                await service.set_schema(database, document)
            except RequestFailed as refused:
                await self._keep(service, database, refused)
        return list(schemas)

    async def _keep(self, service: Service, database: str, refused: RequestFailed) -> None:
        """Keep the schema of an earlier demo, if there is one."""
        names = [item["name"] for item in (await succeed(service.admin.get("schemas")))["items"]]
        if database not in names:
            raise refused
        self._print(f"[yellow]{database} stays as it was set before:[/] {refused.detail}")

    async def _load(self, service: Service, databases: list[str]) -> None:
        newspaper = objects(seed=_SEED)
        for database in databases:
            for class_name, members in newspaper.items():
                try:
                    await service.create(database, {class_name: members})
                except Failed as failed:
                    if class_name == "articles":
                        raise
                    self._print(f"[yellow]Not loaded into {database}:[/] {failed}")
        counts = ", ".join(f"{len(members)} {name}" for name, members in newspaper.items())
        self._print(f"Loaded into {' and '.join(databases)}: {counts}.")

    async def _drive(self, service: Service, databases: list[str]) -> list[_Comparison]:
        works = {
            "hits, one by one": partial(single_hits, seed=_SEED),
            "hits, batches of 100": partial(batched_hits, seed=_SEED),
            "top-ten reads": partial(top_ten, connections=_READERS),
        }
        slices = len(works) * len(databases) * _ROUNDS
        seconds = max(0.1, self._options.seconds / slices)
        self._print("The same Zipf workload, in turns, on both; the generator is another process.")
        with Progress(console=self._console, refresh_per_second=2) as progress:
            task = progress.add_task("Readers read", total=slices)
            async with LoadProcess() as load:

                async def measure(lane: LoadLane) -> LoadResult:
                    (result,) = await drive(load, service, [lane], seconds)
                    progress.advance(task)
                    return result

                comparisons = []
                for name, make_lane in works.items():
                    measures = {
                        database: partial(measure, make_lane(database)) for database in databases
                    }
                    comparisons.append(_compare(name, await interleaved(_ROUNDS, measures)))
        return comparisons

    async def _top_ten(self, service: Service) -> None:
        top = service.data.get(
            f"{MIXED}/articles", params={"order": "-hits", "limit": "3", "fields": "hits,title"}
        )
        items = (await succeed(top))["items"]
        articles = ", ".join(f"“{item['title']}” ({item['hits']:,})" for item in items)
        self._print(f"Most read: {articles}.")


def _compare(name: str, results: dict[str, list[LoadResult]]) -> _Comparison:
    rates = {
        database: median(result.rate for result in rounds) for database, rounds in results.items()
    }
    p99 = {
        database: median(result.percentile(0.99) for result in rounds)
        for database, rounds in results.items()
    }
    return _Comparison(name, rates[MIXED], rates[SINGLE], p99[MIXED], p99[SINGLE])


async def _explanations(service: Service) -> list[dict[str, Any]]:
    classes: dict[str, Any] = (await succeed(service.admin.get(f"schemas/{MIXED}")))["schema"][
        "classes"
    ]
    paths = [f"{name}/{field}" for name, class_ in classes.items() for field in class_["fields"]]
    return [await succeed(service.admin.get(f"placements/{MIXED}/{path}")) for path in paths]


def _invite(console: Console, running: Serving) -> None:
    data, admin = running.addresses.data, running.addresses.admin
    console.print(
        f"\n[bold]Data API[/]   {data}/v1/   ({data}/docs)\n"
        f"[bold]Admin API[/]  {admin}/admin/v1/   ({admin}/docs)\n\n"
        "Try, in another terminal:\n",
        highlight=False,
    )
    hit = """-H 'Content-Type: application/vnd.portolan.update+json' -d '{"hits": {"inc": 1}}'"""
    for command in (
        f"curl '{data}/v1/{MIXED}/articles?order=-hits&limit=3&fields=hits,title'",
        f"curl -X PATCH {data}/v1/{MIXED}/articles/a7 {hit}",
        f"curl {admin}/admin/v1/placements/{MIXED}/articles/hits",
    ):
        console.print(f"  {command}", highlight=False, soft_wrap=True, markup=False)
    console.print("\nThe service runs until Ctrl-C.")


def _systems_table(systems: Iterable[Mapping[str, Any]]) -> Table:
    columns = [*map(Column, ("system", "server"))]
    columns += _figures("loses at most", "writes/s", "write", "reads/s", "read")
    table = Table(*columns, title="Systems, as probed, observed, calibrated and declared")
    for system in systems:
        findings, metrics = system["findings"], system["metrics"]
        table.add_row(
            system["name"],
            findings["server"],
            _NONE if findings["durability_s"] is None else f"{findings['durability_s']:g} s",
            _rate(metrics.get("write_throughput")),
            _milliseconds(metrics.get("write_latency")),
            _rate(metrics.get("read_throughput")),
            _milliseconds(metrics.get("read_latency")),
        )
    return table


def _placements_table(explanations: Iterable[Mapping[str, Any]]) -> Table:
    """Show where each field is, and why; a scored field has its own row."""
    rows: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for node in explanations:
        class_name = node["node"].partition(".")[0]
        scored = node["node"] if node["score"] is not None else ""
        rows.setdefault((class_name, node["system"], scored), []).append(node)
    figures = _figures("score", "runner-up", "margin")
    columns = [Column("nodes"), Column("system", no_wrap=True), *figures, Column("why")]
    table = Table(*columns, title="Placements of the newspaper")
    for (class_name, system, _), nodes in rows.items():
        names = ", ".join(node["node"].partition(".")[2] for node in nodes)
        score, margin = nodes[0]["score"], nodes[0]["margin"]
        table.add_row(
            f"{class_name}: {names}",
            system,
            _NONE if score is None else f"{score:.3f}",
            margin["runner_up"] if margin else _NONE,
            f"{margin['ratio']:.0%}" if margin else _NONE,
            nodes[0]["why"],
        )
    return table


def _throughput_table(comparisons: Sequence[_Comparison], servers: Sequence[str]) -> Table:
    figures = _figures("placed, ops/s", "p99", "all on PostgreSQL, ops/s", "p99", "ratio")
    table = Table(
        *[Column("work"), *figures],
        title="Throughput, measured here and now (medians of rounds in turns)",
        caption=f"Equal declared durability; {', '.join(servers)}.",
    )
    for comparison in comparisons:
        table.add_row(
            comparison.work,
            _rate(comparison.placed),
            _milliseconds(comparison.placed_p99_s),
            _rate(comparison.single),
            _milliseconds(comparison.single_p99_s),
            f"{comparison.placed / comparison.single:.2f}" if comparison.single else _NONE,
        )
    return table


def _figures(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def _rate(rate: float | None) -> str:
    return _NONE if rate is None else f"{rate:,.0f}"


def _milliseconds(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{seconds * 1000:.2f} ms"
