"""``portolan verify`` and ``rebuild-view``: the materialised view of a database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.commands.consoles import console
from app.commands.running import AdminUrl, KeyFile, admin_service, check_name
from app.commands.service_client import ServiceClient, ServiceRefused

if TYPE_CHECKING:
    from rich.table import Table


__all__ = ["rebuild_view", "verify"]

POLL_S: Final = 0.3

Viewed = Annotated[
    str, typer.Argument(callback=check_name, help="A database that has a materialised view.")
]


def verify(
    database: Viewed,
    *,
    repair: Annotated[bool, typer.Option(help="Repair what is wrong.")] = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Compare the materialised view of a database with the systems that it is copied from.

    Ends with 1 if something is wrong and was not repaired. The service has to be running.
    """
    _run(url, key_file, database, "verify", repair=repair)


def rebuild_view(database: Viewed, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Copy a whole database into its materialised view anew, while it is in use, and compare.

    Ends with 1 if something is wrong afterwards. The service has to be running.
    """
    _run(url, key_file, database, "rebuild")


def _run(url: str | None, key_file: Path | None, database: str, what: str, **flags: bool) -> None:
    path = f"/views/{database}"
    with admin_service(url, key_file) as service:
        begun = service.request("POST", f"{path}/{what}", params=flags)["run"]
        ended = _follow(service, path, begun)
    console.print(_report(ended))
    if ended["wrong"] != ended["repaired"]:
        raise typer.Exit(1)


def _follow(service: ServiceClient, path: str, run: dict[str, Any]) -> dict[str, Any]:
    from rich.progress import Progress

    id_ = run["id"]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(run["phase"])
        while run["state"] == "running":
            classes = (run["classes"] or {}).values()
            done, total = (sum(each[name] for each in classes) for name in ("objects", "of"))
            progress.update(bar, description=run["phase"], completed=done, total=total or None)
            sleep(POLL_S)
            run = service.request("GET", path)["run"]
            if run["id"] != id_:
                raise ServiceRefused("Another run has begun meanwhile.")
    if run["state"] != "done":
        raise ServiceRefused(f"The run has {run['state']}: {run['detail']}.")
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
