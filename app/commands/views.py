"""``portolan verify`` and ``rebuild-view``: verify and rebuild a database's materialised view."""

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

ViewDatabase = Annotated[
    str, typer.Argument(callback=check_name, help="A database with a materialised view.")
]


def verify(
    database: ViewDatabase,
    *,
    repair: Annotated[bool, typer.Option(help="Repair wrong copies.")] = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Compare the materialised view of a database with the systems that it copies.

    Exits with 1 if a copy is wrong and was not repaired. The service must be running.
    """
    _run(url, key_file, database, "verify", repair=repair)


def rebuild_view(database: ViewDatabase, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Rebuild the materialised view of a database while it is in use, and compare.

    Exits with 1 if a copy is wrong afterwards. The service must be running.
    """
    _run(url, key_file, database, "rebuild")


def _run(url: str | None, key_file: Path | None, database: str, action: str, **flags: bool) -> None:
    path = f"/views/{database}"
    with admin_service(url, key_file) as service:
        run = service.request("POST", f"{path}/{action}", params=flags)["run"]
        ended_run = _follow(service, path, run)
    console.print(_report(ended_run))
    if ended_run["wrong"] != ended_run["repaired"]:
        raise typer.Exit(1)


def _follow(service: ServiceClient, path: str, run: dict[str, Any]) -> dict[str, Any]:
    from rich.progress import Progress

    id_ = run["id"]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(run["phase"])
        while run["state"] == "running":
            classes = (run["classes"] or {}).values()
            done, total = (sum(class_[name] for class_ in classes) for name in ("objects", "of"))
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
        wrong = ", ".join(f"{count} {fault}" for fault, count in findings["wrong"].items())
        examples = ", ".join(
            f"{example['id']} ({example['wrong']})" for example in findings["examples"][:3]
        )
        table.add_row(
            name, f"{findings['objects']:,}", wrong or "none", f"{findings['repaired']:,}", examples
        )
    return table
