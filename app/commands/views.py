"""``portolan verify`` and ``rebuild-view``: the materialised view of a database."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands.consoles import console
from app.commands.running import run

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
    _run(url, database, f"verify?repair={str(repair).lower()}")


def rebuild_view(
    database: Annotated[str, typer.Argument(help="A database that has a materialised view.")],
    *,
    url: AdminUrl = None,
) -> None:
    """Copy a whole database into its materialised view anew, while it is in use, and compare.

    Ends with 1 if something is wrong afterwards. The service has to be running.
    """
    _run(url, database, "rebuild")


def _run(url: str | None, database: str, what: str) -> None:
    from app.commands.view_runs import RunFailed, run_maintenance
    from app.settings.access import AccessSettings
    from app.settings.main import HttpSettings

    async def maintain() -> None:
        admin, key = url or HttpSettings().admin_url, AccessSettings().key
        if not await run_maintenance(admin, key, database, what, console):
            raise typer.Exit(1)

    run(maintain(), RunFailed)
