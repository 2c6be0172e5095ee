"""Client of the maintenance runs of materialised views."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.settings.access import bearer

__all__ = ["RunFailed", "run_maintenance"]

POLL_S: Final = 0.3
TIMEOUT_S: Final = 30.0


class RunFailed(Exception):
    """The run could not be started, or did not come to its end."""


async def run_maintenance(
    url: str, key: SecretStr | None, database: str, what: str, console: Console
) -> bool:
    """Run a maintenance task of a view and show its progress; whether nothing is wrong by now.

    Args:
        url: Address of the admin API.
        key: Sent to it; None: it needs none.
        database: Whose view.
        what: The task, as the path of the admin API names it.
        console: Where the progress and the report are printed.

    Raises:
        RunFailed: With the reason.
    """
    path = f"/admin/v1/views/{quote(database, safe='')}"
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, headers=bearer(key)) as admin:
        try:
            started = _body(await admin.post(f"{path}/{what}"))["run"]
            run = await _follow(admin, path, started, console)
        except httpx.HTTPError as error:
            raise RunFailed(f"The admin API at {url} does not answer.") from error
    if run["state"] != "done":
        raise RunFailed(f"The run has {run['state']}: {run['detail']}.")
    console.print(_report(run))
    return bool(run["wrong"] == run["repaired"])


async def _follow(admin: httpx.AsyncClient, path: str, run: Any, console: Console) -> Any:
    """Show the progress of a run; return its last report."""
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
    body = response.json()
    if response.is_error:
        raise RunFailed(body.get("detail", f"The answer was {response.status_code}."))
    return body


def _report(run: Mapping[str, Any]) -> Table:
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
