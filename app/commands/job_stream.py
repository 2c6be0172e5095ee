"""``portolan job stream``: link records as they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.consoles import errors
from app.commands.run_view import read_job_file
from app.commands.running import readable_errors
from app.commands.streaming import Follow, locked_session, spark_options, trigger

if TYPE_CHECKING:
    from spark_jobs.linkage.private.stream_state import LinkageCommit
    from spark_jobs.runner.job import Job

__all__ = ["stream"]


def stream(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="JOB",
            exists=True,
            dir_okay=False,
            help="The job, in JSON or (*.yaml) YAML, whose mode is stream.",
        ),
    ],
    state: Annotated[Path, typer.Argument(file_okay=False, help="Directory of records and links.")],
    *,
    files: Annotated[
        int, typer.Option(min=1, max=10_000, help="Files of each owner in a batch at most.")
    ] = 16,
    follow: Follow = False,
    retention_s: Annotated[
        float | None,
        typer.Option(
            "--retention-s", min=0.001, help="Seconds that a record is kept; by default for ever."
        ),
    ] = None,
) -> None:
    """Link records as their files arrive; the next call resumes from the state.

    Each owner's source is a directory. Links are Parquet files in `results` of the state:
    docs/linkage.md. PORTOLAN_SPARK is the address of Spark.
    """
    from spark_jobs.runner.job import parse_job
    from spark_jobs.runner.specification import SpecInvalid

    with readable_errors("The job is malformed", SpecInvalid):
        job = parse_job(read_job_file(spec), stream=True)
    _execute(job, state, files, retention_s, follow=follow)


def _execute(job: Job, state: Path, files: int, retention_s: float | None, *, follow: bool) -> None:
    options = spark_options()
    from spark_jobs.linkage.private.stream import LinkageStream
    from spark_jobs.linkage.private.stream_files import start
    from spark_jobs.linkage.private.stream_state import LinkageDirectory
    from spark_jobs.runner.port import InputUnfit
    from spark_jobs.streaming_queries import end

    directory = LinkageDirectory(state)
    with locked_session(options, "streams of records", directory, InputUnfit) as session:
        linkage = LinkageStream(directory, session, job.spec, retention_s)
        end(start(linkage, job.inputs, files, _print_progress, trigger(follow=follow)))
        typer.echo(_summary(directory.latest()))


def _print_progress(commit: LinkageCommit) -> None:
    errors.print(f"batch {commit.batch}: {_summary(commit)}")


def _summary(commit: LinkageCommit) -> str:
    retained = sum(owner.records for owner in commit.kept)
    return (
        f"{commit.records:,} records, {commit.pairs:,} pairs compared, {commit.links:,} links so"
        f" far, {retained:,} records kept"
    )
