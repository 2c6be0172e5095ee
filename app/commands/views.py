"""``portolan verify`` and ``rebuild-view``: the materialised view of a database."""

from __future__ import annotations

from collections.abc import Mapping
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.commands.consoles import console, errors
from app.commands.running import NOT_DONE, AdminUrl, Database, KeyFile, admin_service

if TYPE_CHECKING:
    from rich.table import Table

    from app.commands.service_client import ServiceClient

__all__ = ["rebuild_view", "verify"]

POLL_S: Final = 0.3


def verify(
    database: Database,
    *,
    repair: Annotated[bool, typer.Option(help="Repair what is wrong.")] = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Compare the materialised view of a database with the systems that it is copied from.

    Ends with 1 if something is wrong and was not repaired. The service has to be running.
    """
    with admin_service(url, key_file) as service:
        _maintain(service, database, f"verify?repair={str(repair).lower()}")


def rebuild_view(database: Database, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Copy a whole database into its materialised view anew, while it is in use, and compare.

    Ends with 1 if something is wrong afterwards. The service has to be running.
    """
    with admin_service(url, key_file) as service:
        _maintain(service, database, "rebuild")


def _maintain(service: ServiceClient, database: str, what: str) -> None:
    path = f"/views/{database}"
    started = service.request("POST", f"{path}/{what}")["run"]
    run = _ended(service, path, started)
    if run["id"] != started["id"]:
        errors.print(f"{NOT_DONE}: another run has begun meanwhile.")
        raise typer.Exit(1)
    if run["state"] != "done":
        errors.print(f"The run has {run['state']}: {run['detail']}.", markup=False)
        raise typer.Exit(1)
    console.print(_report(run))
    if run["wrong"] != run["repaired"]:
        raise typer.Exit(1)


def _ended(service: ServiceClient, path: str, started: dict[str, Any]) -> dict[str, Any]:
    """Return the run once it has ended, or another one that has begun."""
    from rich.progress import Progress

    run = started
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(run["phase"])
        while run["state"] == "running" and run["id"] == started["id"]:
            classes = (run["classes"] or {}).values()
            done, total = (sum(each[name] for each in classes) for name in ("objects", "of"))
            progress.update(bar, description=run["phase"], completed=done, total=total or None)
            sleep(POLL_S)
            run = service.request("GET", path)["run"]
    return run


def _report(run: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(title="Copies in the view, compared with their systems")
    for heading in ("class", "objects", "wrong", "repaired", "for example"):
        table.add_column(heading)
    for name, findings in (run["classes"] or {}).items():
        wrong = ", ".join(f"{count} {what}" for what, count in findings["wrong"].items())
        examples = ", ".join(f"{each['id']} ({each['wrong']})" for each in findings["examples"][:3])
        table.add_row(
            name, f"{findings['objects']:,}", wrong or "none", f"{findings['repaired']:,}", examples
        )
    return table
