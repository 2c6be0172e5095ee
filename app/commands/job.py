"""``portolan job``: analytic jobs, on files here or at a service."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.consoles import errors, print_document
from app.commands.job_stream import stream
from app.commands.reconnection import interruptible
from app.commands.run_view import (
    EXIT,
    bars,
    check_target,
    print_reasons,
    read_job_file,
    show,
)
from app.commands.running import NOT_DONE, DataUrl, KeyFile, data_service, readable_errors

if TYPE_CHECKING:
    from app.commands.remote_runs import RemoteRuns
    from spark_jobs.runner.job import Job

__all__ = ["job"]

_MALFORMED = "The job is malformed"

Id = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
Database = Annotated[str, typer.Option(help="The database that the run belongs to.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and show progress.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Wait, and write the result here: .csv, .json, .parquet, .arrow."),
]

job = typer.Typer(no_args_is_help=True, help="Analytic jobs: docs/jobs.md.")


@job.command("kinds")
def kinds() -> None:
    """List the kinds of jobs."""
    from spark_jobs.kinds import find_kind, kind_names

    for name in kind_names():
        typer.echo(f"{name:20} {find_kind(name).summary}")


@job.command("schema")
def schema(name: Annotated[str, typer.Argument(metavar="KIND")]) -> None:
    """Print the JSON Schema of the specifications of a kind."""
    from spark_jobs.kinds import find_kind
    from spark_jobs.runner.specification import SpecInvalid

    with readable_errors(_MALFORMED, SpecInvalid):
        print_document(find_kind(name).specification.model_json_schema())


@job.command("run")
def run(
    spec: Annotated[
        Path, typer.Argument(help="The job, in JSON or (*.yaml) YAML: kind, spec, limits.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="File for the result: .csv, .json, .parquet, .arrow.")
    ] = None,
    reports: Annotated[Path | None, typer.Option(help="File for the reports, as JSON.")] = None,
    dry_run: Annotated[bool, typer.Option(help="End with the forecast, and print it.")] = False,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Keep finished stages here; the next call resumes after them."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the end; runs on files always wait.")] = True,
    verbose: Annotated[bool, typer.Option(help="Show where a run failed.")] = False,
) -> None:
    """Execute a job on files, without a service.

    Exits with 0 if it is done, 3 if its limits stopped it, 130 if it was interrupted, else 1.
    """
    from spark_jobs.runner.job import parse_job
    from spark_jobs.runner.specification import SpecInvalid
    from spark_jobs.session import SparkUnavailable

    logging.getLogger("portolan.jobs").setLevel("DEBUG" if verbose else "ERROR")
    del wait  # the same command line works with a service and without
    with ExitStack() as stack:
        stack.enter_context(readable_errors("Nothing was done", SparkUnavailable, OSError))
        stack.enter_context(readable_errors(_MALFORMED, SpecInvalid))
        job_ = parse_job(read_job_file(spec))
        if out is not None:
            check_target(out)
        elif not dry_run:
            raise typer.BadParameter("--out or --dry-run is required.")
        if run_dir is None:
            scratch = tempfile.TemporaryDirectory(prefix="portolan-run-")
            run_dir = Path(stack.enter_context(scratch))
        raise typer.Exit(_execute(job_, run_dir, out, reports, dry_run=dry_run))


def _execute(
    job_: Job, path: Path, out: Path | None, reports: Path | None, *, dry_run: bool
) -> int:
    from app.settings.main import JobSettings
    from spark_jobs.runner import local
    from spark_jobs.runner.attempt import RunAttempt
    from spark_jobs.runner.control import Control
    from spark_jobs.runner.run_directory import RunDirectory
    from spark_jobs.session import LazySession, open_session
    from spark_jobs.sources.reading import read_input
    from spark_jobs.sources.tables import read_table

    control, directory = Control(), RunDirectory(path)
    options = JobSettings().spark_options()
    session = LazySession(lambda: open_session(options))
    with bars() as progress:
        attempt = RunAttempt(
            job_, directory, session, read_input, control, dry_run=dry_run, read_table=read_table
        )
        ending = local.run_to_end(
            attempt, control, lambda: show(progress, control.snapshot()["stages"])
        )
        show(progress, control.snapshot()["stages"])
    if ending.forecast is not None and dry_run:
        print_document(asdict(ending.forecast))
    print_reasons(ending.state, ending.reasons)
    if ending.result is not None and out is not None:
        local.write_result(directory, ending, out)
        errors.print(f"{ending.rows:,} rows: {out}")
    if reports is not None:
        local.write_reports(directory, reports)
    return EXIT[ending.state]


job.command("stream")(stream)


@job.command("submit")
def submit(
    spec: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The job, in JSON or (*.yaml) YAML.")
    ],
    *,
    database: Database,
    url: DataUrl = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="End with the forecast.")] = False,
) -> None:
    """Submit a job to a service and print the run.

    If the connection is lost, the command waits for the service; the job is submitted once.
    With --wait it ends with 0 if the run is done, 3 if its limits stopped it, 130 if it was
    cancelled, else 1. Ctrl-C ends the waiting; the run goes on.
    """
    from app.commands.remote_runs import MAYBE_SUBMITTED

    document = read_job_file(spec)
    with _runs(url, database, key_file, out) as runs:
        with interruptible(lambda: f" {MAYBE_SUBMITTED}"):
            run = runs.submit(document, dry_run=dry_run)
        _follow_up(runs, run, out, wait=wait)


@job.command("show")
def show_(
    run: Id,
    *,
    database: Database,
    url: DataUrl = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
) -> None:
    """Print a run; with --out, download its result."""
    with _runs(url, database, key_file, out) as runs:
        _follow_up(runs, runs.find(run), out, wait=wait)


@job.command("list")
def list_(
    *,
    database: Database,
    url: DataUrl = None,
    key_file: KeyFile = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
) -> None:
    """List the runs of a database, newest first."""
    with _runs(url, database, key_file) as runs:
        for run in runs.newest(limit):
            typer.echo(f"{run['id']}  {run['state']:11}  {run['kind']:16}  {run['created']}")


@job.command("cancel")
def cancel(run: Id, *, database: Database, url: DataUrl = None, key_file: KeyFile = None) -> None:
    """Cancel a run, and print it."""
    with _runs(url, database, key_file) as runs:
        print_document(runs.cancel(run))


@job.command("resume")
def resume(
    run: Id,
    *,
    database: Database,
    url: DataUrl = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
) -> None:
    """Resume a failed or cancelled run after its finished stages."""
    with _runs(url, database, key_file, out) as runs:
        _follow_up(runs, runs.resume(run), out, wait=wait)


def _follow_up(runs: RemoteRuns, run: dict[str, Any], out: Path | None, *, wait: bool) -> None:
    """Print a run; with `wait` or `out` wait for its end, and save its result."""
    from app.commands.remote_runs import ENDED

    if not wait and out is None:
        print_document(run)
        return
    errors.print(f"Run {run['id']}")
    ended_run = run if run["state"] in ENDED else _follow(runs, run["id"])
    print_reasons(ended_run["state"], ended_run.get("reasons", ()))
    if out is not None and ended_run.get("rows") is not None:
        runs.save(ended_run["id"], out)
        errors.print(f"{ended_run['rows']:,} rows: {out}")
    else:
        print_document(ended_run)
    raise typer.Exit(EXIT[ended_run["state"]])


def _follow(runs: RemoteRuns, run: str) -> dict[str, Any]:
    hint = f" The run goes on. To cancel it: portolan job cancel {run}"
    with interruptible(lambda: hint), bars() as progress:
        return runs.follow(run, lambda state: show(progress, state.get("stages", ())))


@contextmanager
def _runs(
    url: str | None, database: str, key_file: Path | None, out: Path | None = None
) -> Iterator[RemoteRuns]:
    """Connect to a service if the target is writable; failures end with a sentence."""
    from app.commands.remote_runs import RemoteRuns

    if out is not None:
        check_target(out)
    with readable_errors(NOT_DONE, OSError), data_service(url, key_file) as service:
        yield RemoteRuns(service, database)
