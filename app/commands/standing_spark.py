"""``portolan standing stream`` and ``event-streams``: standing queries on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.commands.consoles import errors
from app.commands.running import Database
from app.commands.standing import File, Intermediates, Limit, Replicas, planned, standing
from app.commands.streaming import Follow, locked_session, spark_options, trigger

if TYPE_CHECKING:
    from mediator.standing.planning import Plan
    from spark_jobs.standing.commits import Commit

__all__ = ["standing"]


State = Annotated[Path, typer.Argument(file_okay=False, help="Where state and results are kept.")]
Retention = Annotated[
    float | None,
    typer.Option("--retention-s", min=0.001, help="Seconds that tuples are kept at least."),
]
Lateness = Annotated[
    float, typer.Option("--lateness-s", min=0, help="Seconds that tuples may be late.")
]


@standing.command()
def stream(
    file: File,
    tuples: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="A directory of files of tuples.")
    ],
    state: State,
    *,
    format_: Annotated[
        Literal["json", "parquet"],
        typer.Option("--format", help="Of the files: JSON lines, or Parquet."),
    ] = "json",
    files: Annotated[int, typer.Option(min=1, max=10_000, help="Files of a batch at most.")] = 1,
    follow: Follow = False,
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
    retention_s: Retention = None,
    lateness_s: Lateness = 0.0,
) -> None:
    """Execute the shared plan on Spark; what is kept goes on with the next call.

    Tuples have `stream`, `number`, `time_s` and `values`. Results are Parquet files in `results` of
    the state: docs/standing-spark.md. PORTOLAN_SPARK says where Spark runs.
    """

    def of_files(session: Any) -> Any:
        from spark_jobs.standing.streaming import file_tuples

        return file_tuples(session, tuples, format_, files)

    _, (plan,) = planned(file, "shared", intermediates, replicas, limit_s)
    _execute(plan, of_files, state, retention_s, lateness_s, follow=follow)


@standing.command("event-streams")
def event_streams(
    file: File,
    database: Database,
    state: State,
    *,
    most: Annotated[
        int, typer.Option(min=1, help="Tuples of a stream in a batch, if it follows them.")
    ] = 50_000,
    consumer: Annotated[
        str | None,
        typer.Option(help="The name of a consumer, for which streams hold tuples back."),
    ] = None,
    follow: Follow = False,
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
    retention_s: Retention = None,
    lateness_s: Lateness = 0.0,
) -> None:
    """Execute the shared plan on Spark over event streams of a database, as `stream` does.

    The streams of the file are event streams of these names. PORTOLAN_CATALOGUE_URL and
    PORTOLAN_COORDINATION_URL say where they are.
    """

    def of_streams(session: Any) -> Any:
        from spark_jobs.standing.streaming import event_stream_tuples

        # All, also those that no query reads: a checkpoint is one of so many streams.
        names = sorted(plan.workload.streams)
        # What is there already is one batch, whose size Spark would not limit.
        return event_stream_tuples(session, database, names, most if follow else None, consumer)

    _, (plan,) = planned(file, "shared", intermediates, replicas, limit_s)
    _execute(plan, of_streams, state, retention_s, lateness_s, follow=follow)


def _execute(
    plan: Plan,
    tuples: Callable[[Any], Any],
    state: Path,
    retention_s: float | None,
    lateness_s: float,
    *,
    follow: bool,
) -> None:
    """Execute a plan until there are no more tuples, or it is interrupted.

    Args:
        tuples: Makes a streaming frame of them from a session of Spark.
    """
    options = spark_options()
    from spark_jobs.standing.commits import StateDirectory
    from spark_jobs.standing.shared_joins import SharedJoins
    from spark_jobs.standing.streaming import start
    from spark_jobs.streaming_queries import end

    longest_s = max(query.window_s for query in plan.workload.joins)
    directory = StateDirectory(state)
    with locked_session(options, "standing queries", directory, ValueError) as session:
        joins = SharedJoins(directory, plan, retention_s or longest_s, lateness_s)
        end(start(joins, tuples(session), _print_progress, trigger(follow=follow)))
        typer.echo(_summary(plan, joins.hops, directory.latest()))


def _print_progress(commit: Commit) -> None:
    errors.print(
        f"batch {commit.batch}: {commit.results:,} results so far, {commit.rows:,} rows stored,"
        f" {commit.late:,} late"
    )


def _summary(plan: Plan, hops: Any, commit: Commit) -> str:
    total = (
        f"{', '.join(plan.workload.queries)}: {commit.results:,} results, {commit.late:,} late,"
        f" {commit.rows:,} rows stored"
    )
    lines = [
        f"  {hop.order!s:32} {sent:14,} tuples sent"
        for hop, sent in zip(hops.hops, commit.sent, strict=False)
    ]
    return "\n".join([total, *lines])
