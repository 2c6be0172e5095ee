"""``portolan verify-references``: find and repair references to objects that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from app.commands.consoles import json_text, printable
from app.commands.reconnection import Tally, resume_hint
from app.commands.running import AdminUrl, Database, Json, KeyFile, admin_service
from app.commands.service_client import ServiceClient, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["verify_references"]

_COUNT_NAMES: Final = ("objects", "dangling", "repaired", "failed")


By: TypeAlias = Literal["nullify", "delete"]
"""How to repair a dangling reference."""


def verify_references(
    database: Database,
    field: Annotated[
        str | None, typer.Argument(metavar="CLASS.FIELD", help="Only this field.")
    ] = None,
    *,
    repair: Annotated[
        By | None, typer.Option(help="Remove the references, or delete the objects.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Only ids after this one, of CLASS.FIELD.")
    ] = None,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Find references to objects that do not exist: docs/schema.md.

    Nothing is written without --repair. Exits with 1 if dangling references remain.
    """
    if after is not None and field is None:
        raise typer.BadParameter("--after needs CLASS.FIELD.")
    with admin_service(url, key_file) as service:
        names = [field] if field is not None else _references_of(service, database)
        tallies = {name: _check(service, database, name, repair, after) for name in names}
    if json:
        document = [
            {"field": name, **tally.counts, "sample": tally.sample}
            for name, tally in tallies.items()
        ]
        typer.echo(json_text(document))
    else:
        for tally in tallies.values():
            typer.echo(_sentence(tally, repair))
    some_remain = any(
        tally.counts["dangling"] > tally.counts["repaired"] for tally in tallies.values()
    )
    raise typer.Exit(1 if some_remain else 0)


def _references_of(service: ServiceClient, database: str) -> Iterator[str]:
    """Yield the fields of a database that refer to objects."""
    schema = service.request("GET", f"/schemas/{database}")["schema"]
    for class_name, class_ in schema["classes"].items():
        for name, members in class_["fields"].items():
            if "to" in members:
                yield f"{class_name}.{name}"


def _check(
    service: ServiceClient, database: str, field: str, repair: By | None, after: str | None
) -> Tally:
    """Check one field."""
    class_name, _, name = field.partition(".")
    request = "POST", path_of("integrity", database, class_name, name)
    parameters = [] if repair is None else [("repair", repair)]

    def hint(position: str | None) -> str:
        # Without an id, the whole field is left to check.
        return "" if position is None else resume_hint(field, after=position)

    tally = Tally(dict.fromkeys(_COUNT_NAMES, 0), label=f"{field}: ")
    return tally.collect(service, request, after, hint, parameters)


def _sentence(tally: Tally, repair: By | None) -> str:
    counts = tally.counts
    examples = ", ".join(f"{reference['id']} (to {reference['to']})" for reference in tally.sample)
    text = f"{tally.label}objects {counts['objects']:,}; dangling {counts['dangling']:,}"
    repaired = "" if repair is None else f"; repaired {counts['repaired']:,}"
    return printable(f"{text}{repaired}{f': {examples}' if examples else ''}")
