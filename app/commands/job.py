"""``portolan job``: analytic jobs, on files here or at a service."""

from __future__ import annotations

import logging
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands import remote_job
from app.commands.consoles import errors
from app.commands.run_view import (
    EXIT,
    bars,
    check_target,
    print_document,
    print_reasons,
    read_job_file,
    show,
)
from app.commands.running import readable_errors

if TYPE_CHECKING:
    from spark_jobs.runner.job import Job

__all__ = ["job"]

_MALFORMED = "The job is malformed"

job = typer.Typer(no_args_is_help=True, help="Analytic jobs: docs/jobs.md.")


@job.command("kinds")
def kinds() -> None:
    """List the kinds of job there are."""
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
    spec: Annotated[Path, typer.Argument(help="The job as JSON: kind, spec, limits.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Where the result goes: .csv, .json, .parquet, .arrow.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="End with the forecast, and print it.")] = False,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Keep finished stages here, and resume behind them next time."),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait for the end; a run on files always does.")
    ] = True,
    verbose: Annotated[bool, typer.Option(help="Show where a run failed.")] = False,
) -> None:
    """Execute a job on files, without a service.

    Ends with 0 if it is done, 3 if its limits stopped it, 130 if it was interrupted, else 1.
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
            raise typer.BadParameter("--out says where the result goes; or ask for a --dry-run.")
        if run_dir is None:
            scratch = tempfile.TemporaryDirectory(prefix="portolan-run-")
            run_dir = Path(stack.enter_context(scratch))
        raise typer.Exit(_execute(job_, run_dir, out, dry_run=dry_run))


def _execute(job_: Job, path: Path, out: Path | None, *, dry_run: bool) -> int:
    from app.settings.main import JobSettings
    from spark_jobs.runner import local
    from spark_jobs.runner.attempt import Attempt
    from spark_jobs.runner.control import Control
    from spark_jobs.runner.run_directory import RunDirectory
    from spark_jobs.session import open_session
    from spark_jobs.sources.reading import read_input

    control, directory = Control(), RunDirectory(path)
    with bars() as progress:
        starting = progress.add_task("Starting Spark", total=None)
        spark = open_session(JobSettings().spark_options())
        progress.remove_task(starting)
        attempt = Attempt(job_, directory, spark, read_input, control, dry_run=dry_run)
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
    return EXIT[ending.state]


for _name, _command in (
    ("submit", remote_job.submit),
    ("show", remote_job.show_),
    ("list", remote_job.list_),
    ("cancel", remote_job.cancel),
    ("resume", remote_job.resume),
):
    job.command(_name)(_command)
