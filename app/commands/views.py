"""``portolan verify`` and ``rebuild-view``: the materialised view of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from app.commands.consoles import console
from app.commands.running import AdminUrl, json_object, run

if TYPE_CHECKING:
    import httpx
    from rich.table import Table

__all__ = ["rebuild_view", "verify"]

POLL_S: Final = 0.3
TIMEOUT_S: Final = 30.0


class RunFailed(Exception):
    """The run could not be started, or did not come to its end."""


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
    from app.settings.main import HttpSettings

    run(_maintain(url or HttpSettings().admin_url, database, what), RunFailed)


async def _maintain(url: str, database: str, what: str) -> None:
    import httpx

    from app.settings.access import AccessSettings, bearer

    headers = bearer(AccessSettings().key)
    path = f"/admin/v1/views/{quote(database, safe='')}"
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, headers=headers) as admin:
        try:
            started = _body(await admin.post(f"{path}/{what}"))["run"]
            ended = await _follow(admin, path, started)
        except httpx.HTTPError as error:
            raise RunFailed(f"The admin API at {url} does not answer.") from error
    if ended["state"] != "done":
        raise RunFailed(f"The run has {ended['state']}: {ended['detail']}.")
    console.print(_report(ended))
    if ended["wrong"] != ended["repaired"]:
        raise typer.Exit(1)


async def _follow(admin: httpx.AsyncClient, path: str, run: Any) -> Any:
    from rich.progress import Progress

    id_ = run["id"]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(run["phase"])
        while run["state"] == "running":
            classes = (run["classes"] or {}).values()
            done, total = (sum(each[name] for each in classes) for name in ("objects", "of"))
            progress.update(bar, description=run["phase"], completed=done, total=total or None)
            await asyncio.sleep(POLL_S)
            run = _body(await admin.get(path))["run"]
            if run["id"] != id_:
                raise RunFailed("Another run has begun meanwhile.")
    return run


def _body(response: httpx.Response) -> Any:
    body = json_object(response)
    if response.is_error:
        raise RunFailed((body or {}).get("detail", f"The answer was {response.status_code}."))
    if body is None:
        raise RunFailed(f"The answer from {response.url.host} is no JSON: is it a proxy's?")
    return body


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
