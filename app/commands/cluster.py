"""``portolan cluster``: standing queries that several workers execute, and rebalancing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.commands.consoles import json_text, print_document
from app.commands.running import check_name, read_document, run
from app.service.interruption import stopped_by_signal

if TYPE_CHECKING:
    from mediator.relocation.administration import ClusterAdministration
    from mediator.relocation.cluster import Cluster

__all__ = ["cluster"]

cluster = typer.Typer(
    no_args_is_help=True,
    help="Standing queries over several workers, moved between them: docs/rebalancing.md.",
)

_MAX_BYTES: Final = 2**22
_BATCH: Final = 1_000


Name = Annotated[str, typer.Argument(help="The name of the cluster.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--coordination-url", help="The coordination Redis; by default that of the settings."
    ),
]


@cluster.command()
def declare(
    name: Name,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Streams and queries: JSON or YAML.")
    ],
    *,
    workers: Annotated[int, typer.Option(min=1, max=64)] = 2,
    partitions: Annotated[int, typer.Option(min=1, max=1_024)] = 64,
    lateness_s: Annotated[
        float,
        typer.Option("--lateness-s", min=0, max=86_400, help="Seconds that tuples may be late."),
    ] = 0.0,
    adaptive: Annotated[
        bool, typer.Option(help="Whether each worker changes its plan as rates change.")
    ] = True,
    url: Url = None,
) -> None:
    """Store the configuration of all participants; the workers start with equal shares."""
    from mediator.relocation.cluster import Declared

    check_name(name)
    queries = read_document(file, _MAX_BYTES, "file of standing queries")

    async def write(clusters: ClusterAdministration) -> None:
        declaration = Declared.even(queries, workers, partitions, lateness_s, adaptive=adaptive)
        declaration.cluster()  # reports mistakes
        await clusters.declare(name, declaration)

    _administer(url, write)


@cluster.command()
def work(
    name: Name,
    addresses: Annotated[
        list[str] | None, typer.Argument(help="Such as split:A, worker:0, manager; all if none.")
    ] = None,
    *,
    url: Url = None,
) -> None:
    """Run participants until SIGTERM or SIGINT; each can be killed and restarted."""

    async def participate(clusters: ClusterAdministration) -> None:
        from mediator.relocation.participant import Participant
        from mediator.relocation.participant import addresses as all_addresses
        from mediator.relocation.port import ClusterGone

        store, configuration = await clusters.find(name)
        cluster_addresses = all_addresses(configuration)
        if unknown := [address for address in addresses or [] if address not in cluster_addresses]:
            raise ValueError(f"{unknown[0]} is not one of {', '.join(cluster_addresses)}.")
        stopping = stopped_by_signal()

        async def run_participant(address: str) -> None:
            try:
                await Participant(store, configuration, address).run(stopping)
            except ClusterGone:
                stopping.set()

        async with asyncio.TaskGroup() as tasks:
            for address in addresses or cluster_addresses:
                tasks.create_task(run_participant(address))

    _administer(url, participate)


@cluster.command()
def feed(
    name: Name,
    tuples: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Tuples in order, one in each line.")
    ],
    *,
    url: Url = None,
) -> None:
    """Append tuples to the logs, and heartbeats for idle streams."""

    async def append(clusters: ClusterAdministration) -> None:
        store, configuration = await clusters.find(name)
        for batch in _batches(tuples, configuration):
            for relation, rows in batch.items():
                await store.append(relation, rows)

    _administer(url, append)


@cluster.command()
def move(
    name: Name,
    *,
    strategy: Annotated[
        Literal["ptlb", "mslb", "auto"],
        typer.Option(help="By duplicated tuples, by shipped state, or the cheaper."),
    ] = "auto",
    sender: Annotated[
        str, typer.Option(help="The sending worker; by default that with most rows.")
    ] = "",
    receiver: Annotated[
        str, typer.Option(help="The receiving one; by default that with fewest rows.")
    ] = "",
    amount: Annotated[int, typer.Option(min=0, help="Rows; 0: half of the difference.")] = 0,
    url: Url = None,
) -> None:
    """Ask the manager to move partition groups; `show` prints the progress."""
    from mediator.relocation.messages import Relocate

    relocation = Relocate(strategy, sender, receiver, amount)
    _administer(url, lambda clusters: clusters.relocate(name, relocation))


@cluster.command()
def cancel(
    name: Name,
    relocation: Annotated[int, typer.Argument(help="Its id.")],
    *,
    url: Url = None,
) -> None:
    """Cancel a relocation that is not past its point of no return."""
    _administer(url, lambda clusters: clusters.cancel(name, relocation))


@cluster.command()
def drop(name: Name, *, url: Url = None) -> None:
    """Remove a cluster with its logs and results; participants that still run end."""
    _administer(url, lambda clusters: clusters.drop(name))


@cluster.command("list")
def list_clusters(*, url: Url = None) -> None:
    """Print the names of clusters."""

    async def names(clusters: ClusterAdministration) -> None:
        for cluster_name in await clusters.names():
            typer.echo(cluster_name)

    _administer(url, names)


@cluster.command()
def show(name: Name, *, url: Url = None) -> None:
    """Print relocations, and what each worker holds, as JSON."""

    async def report(clusters: ClusterAdministration) -> None:
        print_document(await clusters.report(name))

    _administer(url, report)


@cluster.command()
def results(name: Name, *, url: Url = None) -> None:
    """Print the retained results as NDJSON."""

    async def follow(clusters: ClusterAdministration) -> None:
        store, _ = await clusters.find(name)
        after = "0"
        while steps := await store.results(after, _BATCH):
            for _, emitted in steps:
                for result in emitted:
                    typer.echo(json_text(result))
            after = steps[-1][0]

    _administer(url, follow)


def _administer(url: str | None, do: Callable[[ClusterAdministration], Awaitable[object]]) -> None:
    """Run `do` on the clusters of a coordination Redis; also print a `ValueError` as a sentence."""
    from app.settings.main import MediatorSettings, MissingSetting
    from mediator.coordination.cluster_store import RedisClusters
    from mediator.coordination.connecting import connect
    from mediator.relocation.administration import ClusterAdministration

    async def administer() -> None:
        address = url
        if address is None:
            configured = MediatorSettings().coordination_url
            if configured is None:
                raise MissingSetting(
                    "There is no coordination Redis: set PORTOLAN_COORDINATION_URL."
                )
            address = configured.get_secret_value()
        redis = connect(address)
        try:
            await do(ClusterAdministration(RedisClusters(redis)))
        finally:
            await redis.aclose()

    run(administer(), ValueError)


def _batches(path: Path, configuration: Cluster) -> Iterator[dict[str, list[Any]]]:
    """Read batches of tuples by stream, in order; raises `ValueError`."""
    from app.commands.standing import read_tuples

    latest_s = float("-inf")
    for batch in read_tuples(path, configuration.workload.streams):
        rows: dict[str, list[Any]] = {name: [] for name in configuration.layout.attributes}
        latest_s = max(latest_s, *(tuple_.time_s for tuple_ in batch))
        for tuple_ in batch:
            # No query reads the other streams.
            if tuple_.stream in rows:
                rows[tuple_.stream].append((tuple_.time_s, tuple_.values))
        for stream_rows in rows.values():
            # A heartbeat advances idle streams too, or nothing would ever leave a window.
            stream_rows.append((latest_s, None))
        yield rows
