"""``portolan verify-references``: references to objects that do not exist, and their repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from app.commands.consoles import json_text, printable
from app.commands.reconnection import Tally, way_on
from app.commands.running import AdminUrl, Database, Json, KeyFile, admin_service
from app.commands.service_client import ServiceClient, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["verify_references"]

_COUNTED: Final = ("objects", "dangling", "repaired", "failed")


By: TypeAlias = Literal["nullify", "delete"]
"""How a dangling reference is repaired."""


def verify_references(
    database: Database,
    field: Annotated[
        str | None, typer.Argument(metavar="CLASS.FIELD", help="Of one field alone.")
    ] = None,
    *,
    repair: Annotated[
        By | None, typer.Option(help="Remove the references, or delete the objects.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Only ids that come after this one, of CLASS.FIELD.")
    ] = None,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Find references to objects that do not exist: docs/schema.md.

    Nothing is written without --repair. Ends with 1 if some dangle and were not repaired.
    """
    if after is not None and field is None:
        raise typer.BadParameter("--after goes on in one field: name CLASS.FIELD.")
    with admin_service(url, key_file) as service:
        names = [field] if field is not None else _references_of(service, database)
        found = {name: _checked(service, database, name, repair, after) for name in names}
    if json:
        listed = [{"field": n, **each.counts, "sample": each.sample} for n, each in found.items()]
        typer.echo(json_text(listed))
    else:
        for each in found.values():
            typer.echo(_sentence(each, repair))
    is_left = any(each.counts["dangling"] > each.counts["repaired"] for each in found.values())
    raise typer.Exit(1 if is_left else 0)


def _references_of(service: ServiceClient, database: str) -> Iterator[str]:
    """Yield the fields of a database that refer to objects."""
    schema = service.request("GET", f"/schemas/{database}")["schema"]
    for class_name, class_ in schema["classes"].items():
        for name, members in class_["fields"].items():
            if "to" in members:
                yield f"{class_name}.{name}"


def _checked(
    service: ServiceClient, database: str, field: str, repair: By | None, after: str | None
) -> Tally:
    """Check one field."""
    class_name, _, name = field.partition(".")
    request = "POST", path_of("integrity", database, class_name, name)
    parameters = [] if repair is None else [("repair", repair)]

    def goes_on(reached: str | None) -> str:
        # Without an id, that is all of the field.
        return "" if reached is None else way_on(field, after=reached)

    tally = Tally(dict.fromkeys(_COUNTED, 0), label=f"{field}: ")
    return tally.collect(service, request, after, goes_on, parameters)


def _sentence(found: Tally, repair: By | None) -> str:
    counts = found.counts
    named = ", ".join(f"{each['id']} (to {each['to']})" for each in found.sample)
    text = f"{found.label}objects {counts['objects']:,}; dangling {counts['dangling']:,}"
    repaired = "" if repair is None else f"; repaired {counts['repaired']:,}"
    return printable(f"{text}{repaired}{f': {named}' if named else ''}")
