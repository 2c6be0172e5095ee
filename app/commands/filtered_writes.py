"""``portolan update`` and ``portolan delete``: writes to all objects that meet conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn
from uuid import uuid4

import typer

from app.commands.conditions import AllowScan, FilterText, Pairs, Where, parameters_of
from app.commands.consoles import json_text, printable
from app.commands.reconnection import Tally, resume_hint
from app.commands.running import ClassName, Database, DataUrl, Json, KeyFile, data_service
from app.commands.service_client import ServiceClient

__all__ = ["delete", "update"]

_COUNT_NAMES: Final = ("matched", "written", "failed")

All = Annotated[bool, typer.Option("--all", help="All objects of the class.")]
After = Annotated[str | None, typer.Option(help="Only ids after this one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the objects without writing them.")]


def _check_key(text: str | None) -> str | None:
    """Refuse a key that the service would refuse; without one, every call makes its own."""
    from app.http.idempotency import parse_key
    from app.http.problems import HttpError

    if text is None:
        return None
    try:
        parse_key(text)
    except HttpError as error:
        raise typer.BadParameter(f"{error.locations[0].detail}.") from None
    return text.strip()


Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        callback=_check_key,
        help="The key of an interrupted call, so that no object is written twice.",
    ),
]


def update(
    database: Database,
    class_name: ClassName,
    patch: Annotated[str, typer.Argument(metavar="JSON", help="The change of each object.")],
    *,
    operators: Annotated[
        bool, typer.Option("--operators", help='JSON has operators: {"hits": {"inc": 1}}.')
    ] = False,
    where: Where = None,
    filter_: FilterText = None,
    all_: All = False,
    allow_scan: AllowScan = False,
    after: After = None,
    idempotency_key: Key = None,
    dry_run: DryRun = False,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Change all objects of a class that meet all conditions: docs/data-api.md.

    An object is a merge patch (RFC 7396), an array a JSON Patch (RFC 6902). Objects are changed one
    by one; refusals are reported, and do not stop the command. Exits with 1 if there were any. If
    the service stops answering, the command waits for it and continues; if that takes too long, or
    after Ctrl-C, a message says how to resume.
    """
    from app.http.negotiation import JSON, UPDATE

    type_ = UPDATE if operators else JSON
    flags = {"allow_scan": allow_scan, "all": all_, "dry_run": dry_run}
    parameters = parameters_of(where, filter_, **flags)
    with data_service(url, key_file) as service:
        tally = _collect(
            service,
            ("PATCH", f"/{database}/{class_name}"),
            idempotency_key,
            parameters,
            after,
            headers={"Content-Type": type_},
            content=patch.encode(),
        )
    _report(tally, "changed", is_dry=dry_run, json=json)


def delete(
    database: Database,
    class_name: ClassName,
    *,
    where: Where = None,
    filter_: FilterText = None,
    all_: All = False,
    allow_scan: AllowScan = False,
    after: After = None,
    idempotency_key: Key = None,
    dry_run: DryRun = False,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Delete all objects of a class that meet all conditions: docs/data-api.md.

    Objects are deleted one by one. Exits with 1 if one was not. If the service stops answering, the
    command waits for it and continues; if that takes too long, or after Ctrl-C, a message says how
    to resume.
    """
    flags = {"allow_scan": allow_scan, "all": all_, "dry_run": dry_run}
    parameters = parameters_of(where, filter_, **flags)
    with data_service(url, key_file) as service:
        request = "DELETE", f"/{database}/{class_name}"
        tally = _collect(service, request, idempotency_key, parameters, after)
    _report(tally, "deleted", is_dry=dry_run, json=json)


def _collect(
    service: ServiceClient,
    request: tuple[str, str],
    key: str | None,
    parameters: Pairs,
    after: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Tally:
    """Send requests under one key: an object whose answer was lost is not changed twice."""
    key = key or uuid4().hex
    all_headers = {**(headers or {}), "Idempotency-Key": key}

    def hint(position: str | None) -> str:
        return resume_hint(idempotency_key=key, after=position)

    tally = Tally(dict.fromkeys(_COUNT_NAMES, 0))
    return tally.collect(service, request, after, hint, parameters, headers=all_headers, **options)


def _report(tally: Tally, action: str, *, is_dry: bool, json: bool) -> NoReturn:
    """Print the outcomes of the objects; ends the command."""
    counts = tally.counts
    if json:
        typer.echo(json_text({**counts, "sample": tally.sample}))
    elif is_dry:
        sample = f": {printable(', '.join(tally.sample))}" if tally.sample else ""
        typer.echo(f"Objects that would be {action}: {counts['matched']:,}{sample}")
    else:
        typer.echo(f"Objects {action}: {counts['written']:,}; refused: {counts['failed']:,}.")
    raise typer.Exit(1 if counts["failed"] else 0)
