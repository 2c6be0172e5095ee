"""``portolan job``: analytic jobs, on files here or at a service."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands import remote_job
from app.commands.consoles import errors
from app.commands.job_file import read_job_file
from app.commands.run_view import EXIT, bars, check_target, print_document, print_reasons, show

if TYPE_CHECKING:
    from spark_jobs.runner.job import Job

__all__ = ["job"]

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

    with _readable_errors():
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

    logging.getLogger("portolan.jobs").setLevel("DEBUG" if verbose else "ERROR")
    del wait  # the same command line works with a service and without
    with _readable_errors():
        job_ = parse_job(read_job_file(spec))
        _check(out, dry_run=dry_run)
    scratch = tempfile.TemporaryDirectory(prefix="portolan-run-") if run_dir is None else None
    with scratch or nullcontext(str(run_dir)) as directory, _readable_errors():
        raise typer.Exit(_execute(job_, Path(directory), out, dry_run=dry_run))


def _check(out: Path | None, *, dry_run: bool) -> None:
    if out is not None:
        check_target(out)
    elif not dry_run:
        raise typer.BadParameter("--out says where the result goes; or ask for a --dry-run.")


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


@contextmanager
def _readable_errors() -> Iterator[None]:
    """End with a sentence instead of a traceback."""
    from spark_jobs.runner.specification import SpecInvalid
    from spark_jobs.session import SparkUnavailable

    try:
        yield
    except SpecInvalid as error:
        errors.print(f"The job is malformed: {error}")
    except (SparkUnavailable, OSError) as error:
        errors.print(f"Nothing was done: {error}")
    else:
        return
    raise typer.Exit(1)


for _name, _command in (
    ("submit", remote_job.submit),
    ("show", remote_job.show_),
    ("list", remote_job.list_),
    ("cancel", remote_job.cancel),
    ("resume", remote_job.resume),
):
    job.command(_name)(_command)
