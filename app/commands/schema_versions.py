"""``portolan schema pinned`` and ``retire``: list and retire versions that clients pin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.commands.consoles import confirm, errors, print_result, printable
from app.commands.running import AdminUrl, Database, Json, KeyFile, Yes, admin_service

__all__ = ["pinned", "retire"]


def pinned(
    database: Database, *, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False
) -> None:
    """List the versions of a schema that clients have pinned, with the last time and the clients.

    These are the requests that the answering replica has seen since it started.
    """
    with admin_service(url, key_file) as service:
        answer = service.request("GET", f"/schemas/{database}/pinned-versions")
    retired_before = answer["retired_before"]
    heading = [f"Versions before {retired_before} are retired."] if retired_before else []
    print_result(answer, [*heading, *map(_line, answer["items"])], json=json)


def retire(
    database: Database,
    *,
    before: Annotated[
        int, typer.Option(min=0, help="The lowest version to keep; a lower one undoes it.")
    ],
    url: AdminUrl = None,
    key_file: KeyFile = None,
    yes: Yes = False,
) -> None:
    """Print which clients have pinned versions before one, ask, and retire these versions.

    Requests that pin them are refused from then on.
    """
    path, document = f"/schemas/{database}/pinned-versions", {"retired_before": before}
    with admin_service(url, key_file) as service:
        dry_run = {"dry_run": "true"}
        uses = service.request("PUT", path, json=document, params=dry_run)["items"]
        for use in uses:
            typer.echo(printable(_line(use)))
        if not uses:
            typer.echo("This replica has seen no client of these versions since it started.")
        confirm(f"Retire the versions of {database} before {before}?", yes=yes)
        service.request("PUT", path, json=document)
    errors.print(f"Versions of {database} before {before} are retired.")


def _line(use: Mapping[str, Any]) -> str:
    """Format a use: version, number of requests, time of the last one, and their senders."""
    senders = ", ".join(f"{sender['tenant']}/{sender['subject']}" for sender in use["by"])
    return f"{use['version']:4}  {use['requests']:8,}  {use['last']:32}  {senders}".rstrip()
