"""``portolan verify`` and ``rebuild-view``: the materialised view of a database."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.consoles import console
from app.commands.running import run

if TYPE_CHECKING:
    from app.commands.view_runs import MaintenanceClient

__all__ = ["rebuild_view", "verify"]


AdminUrl = Annotated[
    str | None, typer.Option(help="Address of the admin API; by the settings if not given.")
]


def verify(
    database: Annotated[str, typer.Argument(help="A database that has a materialised view.")],
    *,
    repair: Annotated[bool, typer.Option(help="Repair what is wrong.")] = False,
    url: AdminUrl = None,
) -> None:
    """Compare the materialised view of a database with the systems that it is copied from.

    Ends with 1 if something is wrong and was not repaired. The service has to be running.
    """
    _run(_client(url).verify(database, repair=repair))


def rebuild_view(
    database: Annotated[str, typer.Argument(help="A database that has a materialised view.")],
    *,
    url: AdminUrl = None,
) -> None:
    """Copy a whole database into its materialised view anew, while it is in use, and compare.

    Ends with 1 if something is wrong afterwards. The service has to be running.
    """
    _run(_client(url).rebuild(database))


def _client(url: str | None) -> MaintenanceClient:
    from app.commands.view_runs import MaintenanceClient
    from app.settings.access import AccessSettings
    from app.settings.main import HttpSettings

    http = HttpSettings()
    key = AccessSettings().key
    return MaintenanceClient(url or http.admin_url, console, key)


def _run(work: Coroutine[Any, Any, bool]) -> None:
    from app.commands.view_runs import RunFailed

    run(_exit(work), RunFailed)


async def _exit(work: Coroutine[Any, Any, bool]) -> None:
    if not await work:
        raise typer.Exit(1)
