"""``portolan cluster``: standing queries that several workers execute, and rebalancing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.commands.running import check_name, read_document, run

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


class MoveStrategy(StrEnum):
    PTLB = "ptlb"
    MSLB = "mslb"
    AUTO = "auto"


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

    async def write() -> None:
        declared = Declared.even(queries, workers, partitions, lateness_s, adaptive=adaptive)
        declared.cluster()  # or a mistake is reported
        async with _clusters(url) as clusters:
            await clusters.declare(name, declared)

    run(write())


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

    async def participate() -> None:
        from mediator.relocation.participant import Participant
        from mediator.relocation.participant import addresses as all_addresses
        from mediator.relocation.port import ClusterGone

        async with _clusters(url) as clusters:
            store, agreed = await clusters.find(name)
            known = all_addresses(agreed)
            if unknown := [each for each in addresses or [] if each not in known]:
                raise ValueError(f"{unknown[0]} is none of {', '.join(known)}.")
            stopping = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stopping.set)

            async def play(address: str) -> None:
                try:
                    await Participant(store, agreed, address).run(stopping)
                except ClusterGone:
                    stopping.set()

            async with asyncio.TaskGroup() as tasks:
                for each in addresses or known:
                    tasks.create_task(play(each))

    run(participate(), ValueError)


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

    async def append() -> None:
        async with _clusters(url) as clusters:
            store, agreed = await clusters.find(name)
            for batch in _batches(tuples, agreed):
                for relation, rows in batch.items():
                    await store.append(relation, rows)

    run(append(), ValueError)


@cluster.command()
def move(
    name: Name,
    *,
    strategy: Annotated[
        MoveStrategy, typer.Option(help="By duplicated tuples, by shipped state, or the cheaper.")
    ] = MoveStrategy.AUTO,
    sender: Annotated[str, typer.Option(help="A worker; that with most rows if not given.")] = "",
    receiver: Annotated[str, typer.Option(help="That with fewest rows if not given.")] = "",
    amount: Annotated[int, typer.Option(min=0, help="Rows; 0: half of the difference.")] = 0,
    url: Url = None,
) -> None:
    """Ask the manager to move partition groups; `show` says how far it is."""
    from mediator.relocation.messages import Relocate

    async def request() -> None:
        async with _clusters(url) as clusters:
            wanted = Relocate(strategy.value, sender, receiver, amount)
            await clusters.relocate(name, wanted)

    run(request())


@cluster.command()
def cancel(
    name: Name,
    relocation: Annotated[int, typer.Argument(help="Its id.")],
    *,
    url: Url = None,
) -> None:
    """Give a relocation up, if it is not past its point of no return."""

    async def request() -> None:
        async with _clusters(url) as clusters:
            await clusters.cancel(name, relocation)

    run(request())


@cluster.command()
def drop(name: Name, *, url: Url = None) -> None:
    """Remove a cluster with its logs and results; participants that still run end."""

    async def remove() -> None:
        async with _clusters(url) as clusters:
            await clusters.drop(name)

    run(remove())


@cluster.command("list")
def list_clusters(*, url: Url = None) -> None:
    """Print the names of clusters."""

    async def names() -> None:
        async with _clusters(url) as clusters:
            for each in await clusters.names():
                typer.echo(each)

    run(names())


@cluster.command()
def show(name: Name, *, url: Url = None) -> None:
    """Print relocations, and what each worker holds, as JSON."""

    async def report() -> None:
        import orjson

        async with _clusters(url) as clusters:
            document = await clusters.report(name)
            typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))

    run(report())


@cluster.command()
def results(name: Name, *, url: Url = None) -> None:
    """Print the results that are kept, as NDJSON."""

    async def follow() -> None:
        import orjson

        async with _clusters(url) as clusters:
            store, _ = await clusters.find(name)
            after = "0"
            while steps := await store.results(after, _BATCH):
                for _, emitted in steps:
                    for each in emitted:
                        typer.echo(orjson.dumps(each))
                after = steps[-1][0]

    run(follow())


@asynccontextmanager
async def _clusters(url: str | None) -> AsyncIterator[ClusterAdministration]:
    from app.settings.main import MediatorSettings, MissingSetting
    from mediator.coordination.cluster_store import RedisClusters
    from mediator.coordination.connecting import connect
    from mediator.relocation.administration import ClusterAdministration

    if url is None:
        configured = MediatorSettings().coordination_url
        if configured is None:
            raise MissingSetting("There is no coordination Redis: set PORTOLAN_COORDINATION_URL.")
        url = configured.get_secret_value()
    redis = connect(url)
    try:
        yield ClusterAdministration(RedisClusters(redis))
    finally:
        await redis.aclose()


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
