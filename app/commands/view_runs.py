"""Runs over views, started through the admin API and watched to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.settings.access import bearer

__all__ = ["RunFailed", "Upkeep"]

ASK_S: Final = 0.3
TIMEOUT_S: Final = 30.0


class RunFailed(Exception):
    """The run could not be started, or did not come to its end."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Watches runs on a console.

    Attributes:
        url: Address of the admin API.
        console: Where the progress and the report are printed.
        key: Sent to the admin API; None: it asks for none.
    """

    url: str
    console: Console
    key: SecretStr | None = None

    async def verify(self, database: str, *, repair: bool) -> bool:
        """Compare a view with its systems; return whether nothing is wrong by now.

        Raises:
            RunFailed: With the reason.
        """
        return await self._run(database, f"verify?repair={str(repair).lower()}")

    async def rebuild(self, database: str) -> bool:
        """Copy everything anew; return whether nothing is wrong by now.

        Raises:
            RunFailed: With the reason.
        """
        return await self._run(database, "rebuild")

    async def _run(self, database: str, what: str) -> bool:
        path = f"/admin/v1/views/{quote(database, safe='')}"
        async with httpx.AsyncClient(
            base_url=self.url, timeout=TIMEOUT_S, headers=bearer(self.key)
        ) as admin:
            try:
                begun = _answer(await admin.post(f"{path}/{what}"))["run"]
                run = await self._scheduler(admin, path, begun)
            except httpx.HTTPError as error:
                raise RunFailed(f"The admin API at {self.url} does not answer.") from error
        if run["state"] != "done":
            raise RunFailed(f"The run has {run['state']}: {run['detail']}.")
        self.console.print(_report(run))
        return bool(run["wrong"] == run["repaired"])

    async def _scheduler(self, admin: httpx.AsyncClient, path: str, run: Any) -> Any:
        """Show the progress of a run; return what it told last."""
        id_ = run["id"]
        with Progress(console=self.console, transient=True) as progress:
            bar = progress.add_task(run["phase"])
            while run["state"] == "running":
                classes = (run["classes"] or {}).values()
                seen, of = (sum(each[name] for each in classes) for name in ("objects", "of"))
                progress.update(bar, description=run["phase"], completed=seen, total=of or None)
                await asyncio.sleep(ASK_S)
                run = _answer(await admin.get(path))["run"]
                if run["id"] != id_:
                    raise RunFailed("Another run has begun meanwhile.")
        return run


def _answer(response: httpx.Response) -> Any:
    told = response.json()
    if response.is_error:
        raise RunFailed(told.get("detail", f"The answer was {response.status_code}."))
    return told


def _report(run: Mapping[str, Any]) -> Table:
    table = Table(title="Copies in the view, compared with their systems")
    for heading in ("class", "objects", "wrong", "repaired", "for example"):
        table.add_column(heading)
    for name, found in (run["classes"] or {}).items():
        wrong = ", ".join(f"{count} {what}" for what, count in found["wrong"].items())
        examples = ", ".join(f"{each['id']} ({each['wrong']})" for each in found["examples"][:3])
        table.add_row(
            name, f"{found['objects']:,}", wrong or "none", f"{found['repaired']:,}", examples
        )
    return table
