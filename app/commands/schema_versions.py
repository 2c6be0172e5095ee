"""``portolan schema pinned`` and ``retire``: the versions that clients have pinned."""

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
    """List the versions of a schema that clients have pinned, when last, and who.

    It is what the replica that answers has seen since it started.
    """
    with admin_service(url, key_file) as service:
        answer = service.request("GET", f"/schemas/{database}/pinned-versions")
    retired = answer["retired_before"]
    first = [f"Versions before {retired} are retired."] if retired else []
    print_result(answer, [*first, *map(_line, answer["items"])], json=json)


def retire(
    database: Database,
    *,
    before: Annotated[
        int, typer.Option(min=0, help="The lowest version that stays; a lower one takes it back.")
    ],
    url: AdminUrl = None,
    key_file: KeyFile = None,
    yes: Yes = False,
) -> None:
    """Print which clients have pinned versions before one, ask, and retire these versions.

    Requests that are pinned to them are refused from then on.
    """
    path, document = f"/schemas/{database}/pinned-versions", {"retired_before": before}
    with admin_service(url, key_file) as service:
        dry_run = {"dry_run": "true"}
        used = service.request("PUT", path, json=document, params=dry_run)["items"]
        for each in used:
            typer.echo(printable(_line(each)))
        if not used:
            typer.echo("This replica has seen no client of these versions since it started.")
        confirm(f"Retire the versions of {database} before {before}?", yes=yes)
        service.request("PUT", path, json=document)
    errors.print(f"Versions of {database} before {before} are retired.")


def _line(use: Mapping[str, Any]) -> str:
    """Write a use: version, requests, the time of the last one, and who has sent them."""
    senders = ", ".join(f"{each['tenant']}/{each['subject']}" for each in use["by"])
    return f"{use['version']:4}  {use['requests']:8,}  {use['last']:32}  {senders}".rstrip()
