"""``portolan job submit | show | list | cancel | resume``: analytic jobs at a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from app.commands.running import KeyFile, key_in, readable_errors

if TYPE_CHECKING:
    from app.commands.remote_runs import RemoteRuns

__all__ = ["cancel", "list_", "resume", "show_", "submit"]

Id = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
Database = Annotated[str, typer.Option(help="The database that the run belongs to.")]
Url = Annotated[
    str | None, typer.Option(help="Address of the data API; by the settings if not given.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it has ended, and show progress.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Wait, and write the result here: .csv, .json, .parquet, .arrow."),
]


def submit(
    spec: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The job as JSON.")],
    *,
    database: Database,
    url: Url = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="End with the forecast.")] = False,
) -> None:
    """Submit a job to a service and print the run.

    With --wait it ends with 0 if the run is done, 3 if its limits stopped it, 130 if it was
    cancelled, else 1. Ctrl-C ends the waiting; the run goes on.
    """
    document = read_job_file(spec)
    with _runs(url, database, key_file, out) as runs:
        run = runs.submit(document, dry_run=dry_run)
        _follow_up(runs, run, out, wait=wait)


def resume(
    run: Id,
    *,
    database: Database,
    url: Url = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
) -> None:
    """Resume a failed or cancelled run behind its finished stages."""
    with _runs(url, database, key_file, out) as runs:
        _follow_up(runs, runs.resume(run), out, wait=wait)


def show_(
    run: Id,
    *,
    database: Database,
    url: Url = None,
    key_file: KeyFile = None,
    wait: Wait = False,
    out: Out = None,
) -> None:
    """Print a run; with --out its result is fetched."""
    with _runs(url, database, key_file, out) as runs:
        _follow_up(runs, runs.find(run), out, wait=wait)


def cancel(run: Id, *, database: Database, url: Url = None, key_file: KeyFile = None) -> None:
    """Cancel a run, and print it."""
    with _runs(url, database, key_file) as runs:
        print_document(runs.cancel(run))


def list_(
    *,
    database: Database,
    url: Url = None,
    key_file: KeyFile = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
) -> None:
    """List the runs of a database, newest first."""
    with _runs(url, database, key_file) as runs:
        for run in runs.newest(limit):
            typer.echo(f"{run['id']}  {run['state']:11}  {run['kind']:16}  {run['created']}")


def _follow_up(runs: RemoteRuns, run: dict[str, Any], out: Path | None, *, wait: bool) -> None:
    """Print a run; with `wait` or `out` wait for its end, and save its result."""
    from app.commands.remote_runs import ENDED

    if not wait and out is None:
        print_document(run)
        return
    errors.print(f"Run {run['id']}", markup=False)
    ended = run if run["state"] in ENDED else _follow(runs, run["id"])
    print_reasons(ended["state"], ended.get("reasons", ()))
    if out is not None and ended.get("rows") is not None:
        runs.save(ended["id"], out)
        errors.print(f"{ended['rows']:,} rows: {out}", markup=False)
    else:
        print_document(ended)
    raise typer.Exit(EXIT[ended["state"]])


def _follow(runs: RemoteRuns, run: str) -> dict[str, Any]:
    try:
        with bars() as progress:
            return runs.follow(run, lambda state: show(progress, state.get("stages", ())))
    except KeyboardInterrupt:
        errors.print(
            f"Not waiting any more; the run goes on. To cancel it: portolan job cancel {run}"
        )
        raise typer.Exit(130) from None


@contextmanager
def _runs(
    url: str | None, database: str, key_file: Path | None, out: Path | None = None
) -> Iterator[RemoteRuns]:
    """Connect to a service, once the result has a place; what fails ends with a sentence."""
    from app.commands.remote_runs import RemoteRuns, ServiceRefused
    from app.settings.main import HttpSettings

    with readable_errors("That was not done", ServiceRefused, OSError):
        if out is not None:
            check_target(out)
        with RemoteRuns(url or HttpSettings().data_url, database, key_in(key_file)) as runs:
            yield runs
