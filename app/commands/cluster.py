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

_MOST_BYTES: Final = 2**22
_BATCH: Final = 1_000


Name = Annotated[str, typer.Argument(help="The name of the cluster.")]
Url = Annotated[
    str | None,
    typer.Option("--coordination-url", help="The coordination Redis; that of the settings else."),
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
    """Write down what all participants agree on; the workers begin with equal shares."""
    from mediator.relocation.cluster import Declared

    check_name(name)
    queries = read_document(file, _MOST_BYTES, "file of standing queries")

    async def write(clusters: ClusterAdministration) -> None:
        declared = Declared.even(queries, workers, partitions, lateness_s, adaptive=adaptive)
        declared.cluster()  # or a mistake is reported
        await clusters.declare(name, declared)

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
    """Run participants until SIGTERM or SIGINT; any of them may be killed and started again."""

    async def participate(clusters: ClusterAdministration) -> None:
        from mediator.relocation.participant import Participant
        from mediator.relocation.participant import addresses as all_addresses
        from mediator.relocation.port import ClusterGone

        store, agreed = await clusters.find(name)
        known = all_addresses(agreed)
        if unknown := [each for each in addresses or [] if each not in known]:
            raise ValueError(f"{unknown[0]} is none of {', '.join(known)}.")
        stopping = stopped_by_signal()

        async def play(address: str) -> None:
            try:
                await Participant(store, agreed, address).run(stopping)
            except ClusterGone:
                stopping.set()

        async with asyncio.TaskGroup() as tasks:
            for each in addresses or known:
                tasks.create_task(play(each))

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
    """Append tuples to the logs, and heartbeats for streams that have none for a while."""

    async def append(clusters: ClusterAdministration) -> None:
        store, agreed = await clusters.find(name)
        for batch in _batches(tuples, agreed):
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
    sender: Annotated[str, typer.Option(help="A worker; that with most rows if not given.")] = "",
    receiver: Annotated[str, typer.Option(help="That with fewest rows if not given.")] = "",
    amount: Annotated[int, typer.Option(min=0, help="Rows; 0: half of the difference.")] = 0,
    url: Url = None,
) -> None:
    """Ask the manager to move partition groups; `show` says how far it is."""
    from mediator.relocation.messages import Relocate

    wanted = Relocate(strategy, sender, receiver, amount)
    _administer(url, lambda clusters: clusters.relocate(name, wanted))


@cluster.command()
def cancel(
    name: Name,
    relocation: Annotated[int, typer.Argument(help="Its id.")],
    *,
    url: Url = None,
) -> None:
    """Give a relocation up, if it is not past its point of no return."""
    _administer(url, lambda clusters: clusters.cancel(name, relocation))


@cluster.command()
def drop(name: Name, *, url: Url = None) -> None:
    """Remove a cluster with its logs and results; participants that still run end."""
    _administer(url, lambda clusters: clusters.drop(name))


@cluster.command("list")
def list_clusters(*, url: Url = None) -> None:
    """Print the names of clusters."""

    async def names(clusters: ClusterAdministration) -> None:
        for each in await clusters.names():
            typer.echo(each)

    _administer(url, names)


@cluster.command()
def show(name: Name, *, url: Url = None) -> None:
    """Print relocations, and what each worker holds, as JSON."""

    async def report(clusters: ClusterAdministration) -> None:
        print_document(await clusters.report(name))

    _administer(url, report)


@cluster.command()
def results(name: Name, *, url: Url = None) -> None:
    """Print the results that are kept, as NDJSON."""

    async def follow(clusters: ClusterAdministration) -> None:
        store, _ = await clusters.find(name)
        after = "0"
        while steps := await store.results(after, _BATCH):
            for _, emitted in steps:
                for each in emitted:
                    typer.echo(json_text(each))
            after = steps[-1][0]

    _administer(url, follow)


def _administer(url: str | None, do: Callable[[ClusterAdministration], Awaitable[object]]) -> None:
    """Do something with the clusters of a coordination Redis; also `ValueError` is a sentence."""
    from app.settings.main import MediatorSettings, MissingSetting
    from mediator.coordination.cluster_store import RedisClusters
    from mediator.coordination.connecting import connect
    from mediator.relocation.administration import ClusterAdministration

    async def connected() -> None:
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

    run(connected(), ValueError)


def _batches(path: Path, agreed: Cluster) -> Iterator[dict[str, list[Any]]]:
    """Read tuples, by stream: the order of each is kept; raises `ValueError`."""
    from app.commands.standing import read_tuples

    latest_s = float("-inf")
    for batch in read_tuples(path, agreed.workload.streams):
        rows: dict[str, list[Any]] = {name: [] for name in agreed.layout.attributes}
        latest_s = max(latest_s, *(each.time_s for each in batch))
        for each in batch:
            # What no query reads is nobody's.
            if each.stream in rows:
                rows[each.stream].append((each.time_s, each.values))
        for of_stream in rows.values():
            # Time goes on for idle streams as well, or nothing would ever leave a window.
            of_stream.append((latest_s, None))
        yield rows
