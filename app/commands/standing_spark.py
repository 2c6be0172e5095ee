"""``portolan standing stream`` and ``event-streams``: standing queries on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.commands.consoles import errors
from app.commands.running import Database
from app.commands.standing import File, Intermediates, Limit, Replicas, plan_queries, standing
from app.commands.streaming import Follow, locked_session, spark_options, trigger

if TYPE_CHECKING:
    from mediator.standing.planning import Plan
    from spark_jobs.standing.commits import Commit

__all__ = ["standing"]


State = Annotated[Path, typer.Argument(file_okay=False, help="Directory of state and results.")]
Retention = Annotated[
    float | None,
    typer.Option("--retention-s", min=0.001, help="Minimum seconds that tuples are kept."),
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
        typer.Option("--format", help="Format of the files: JSON lines, or Parquet."),
    ] = "json",
    files: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum files of a batch.")] = 1,
    follow: Follow = False,
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
    retention_s: Retention = None,
    lateness_s: Lateness = 0.0,
) -> None:
    """Execute the shared plan on Spark; the next call resumes from the state.

    Tuples have `stream`, `number`, `time_s` and `values`. Results are Parquet files in `results` of
    the state: docs/standing-spark.md. PORTOLAN_SPARK is the address of Spark.
    """

    def read_files(session: Any) -> Any:
        from spark_jobs.standing.streaming import file_tuples

        return file_tuples(session, tuples, format_, files)

    _, (plan,) = plan_queries(file, "shared", intermediates, replicas, limit_s)
    _execute(plan, read_files, state, retention_s, lateness_s, follow=follow)


@standing.command("event-streams")
def event_streams(
    file: File,
    database: Database,
    state: State,
    *,
    max_tuples: Annotated[
        int, typer.Option(min=1, help="Maximum tuples of a stream in a batch, with --follow.")
    ] = 50_000,
    consumer: Annotated[
        str | None,
        typer.Option(help="A consumer, for which streams retain tuples."),
    ] = None,
    follow: Follow = False,
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
    retention_s: Retention = None,
    lateness_s: Lateness = 0.0,
) -> None:
    """Execute the shared plan on Spark over event streams of a database, as `stream` does.

    The streams of the file are event streams of the same names, in the installation of
    PORTOLAN_CATALOGUE_URL and PORTOLAN_COORDINATION_URL.
    """

    def read_streams(session: Any) -> Any:
        from spark_jobs.standing.streaming import event_stream_tuples

        # All streams, read or not: the number of streams is part of a checkpoint.
        names = sorted(plan.workload.streams)
        # Without --follow, one batch has all present tuples, whose number Spark does not limit.
        return event_stream_tuples(
            session, database, names, max_tuples if follow else None, consumer
        )

    _, (plan,) = plan_queries(file, "shared", intermediates, replicas, limit_s)
    _execute(plan, read_streams, state, retention_s, lateness_s, follow=follow)


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
        tuples: Creates a streaming data frame of them in a Spark session.
    """
    options = spark_options()
    from spark_jobs.standing.commits import StateDirectory
    from spark_jobs.standing.shared_joins import SharedJoins
    from spark_jobs.standing.streaming import start
    from spark_jobs.streaming_queries import end

    max_window_s = max(query.window_s for query in plan.workload.joins)
    directory = StateDirectory(state)
    with locked_session(options, "standing queries", directory, ValueError) as session:
        joins = SharedJoins(directory, plan, retention_s or max_window_s, lateness_s)
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
