"""``portolan schema``: schemas shown, compared with the one in force, and put in force."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.commands.consoles import errors, json_text, print_document, printable
from app.commands.running import (
    NOT_DONE,
    AdminUrl,
    Database,
    Json,
    KeyFile,
    admin_service,
    read_json_file,
)

if TYPE_CHECKING:
    from app.commands.schema_differences import Difference
    from app.commands.service_client import ServiceClient

__all__ = ["schema"]

_MAX_BYTES: Final = 8 * 2**20
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}

schema = typer.Typer(no_args_is_help=True, help="Schemas of a running service: docs/schema.md.")

File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="The schema, as a JSON object.")
]


@dataclass(frozen=True, slots=True)
class _Change:
    """What a schema would change, by a dry run of the service.

    Attributes:
        version: Of the schema in force; 0 if there is none.
        placements: Of the nodes that would get another system than they have, or are new.
        moves: What forbids the change: data that it would move, or read as something else.
    """

    database: str
    version: int
    differences: list[Difference]
    placements: dict[str, Any]
    moves: list[dict[str, Any]]
    notes: list[str]


@schema.command("show")
def show(database: Database, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Print the schema in force, complete with defaults, in the form that `apply` reads."""
    with admin_service(url, key_file) as service:
        print_document(service.request("GET", _path(database))["schema"])


@schema.command("diff")
def diff(
    database: Database,
    file: File,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Print what a schema would change, and where it would be placed; nothing happens.

    Ends with 1 if the service would refuse the change.
    """
    document = read_json_file(file, _MAX_BYTES, "schema")
    with admin_service(url, key_file) as service:
        change = _change(service, database, document)
    _print_change(change, json=json)
    raise typer.Exit(1 if change.moves else 0)


@schema.command("apply")
def apply(
    database: Database,
    file: File,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Print what a schema changes, ask, and put it in force.

    It is refused if the schema has been changed since the changes were printed.
    """
    if dry_run:
        diff(database, file, url=url, key_file=key_file, json=json)
    document = read_json_file(file, _MAX_BYTES, "schema")
    with admin_service(url, key_file) as service:
        change = _change(service, database, document)
        _print_change(change, json=json)
        if change.moves:
            errors.print(f"{NOT_DONE}: existing data would move.")
            raise typer.Exit(1)
        if not (change.differences or change.placements):
            return
        if not yes:
            _confirm()
        done = _put(service, database, document, change.version)
    version = done["version"]
    errors.print(f"{database} has version {version} of its schema now.", markup=False)


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("Without a terminal to ask at, --yes is required.")
    typer.confirm("Put it in force?", abort=True, err=True)


def _change(service: ServiceClient, database: str, document: dict[str, Any]) -> _Change:
    from app.commands.schema_differences import differences

    present = _present(service, database)
    new = _put(service, database, document, present["version"], dry_run=True)
    return _Change(
        database,
        present["version"],
        differences(present["schema"], new["schema"]),
        {
            node: {**placed, "before": before}
            for node, placed in new["placements"].items()
            if (before := present["placements"].get(node, {}).get("system")) != placed["system"]
        },
        new["moves"],
        new["notes"],
    )


def _present(service: ServiceClient, database: str) -> dict[str, Any]:
    from app.commands.service_client import ServiceRefused

    try:
        return service.request("GET", _path(database))
    except ServiceRefused as refused:
        if refused.problem.get("type") != "/problems/not-found":
            raise
        return {"version": 0, "schema": {}, "placements": {}}


def _put(
    service: ServiceClient,
    database: str,
    document: dict[str, Any],
    version: int,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    return service.request(
        "PUT",
        _path(database),
        json=document,
        params={"dry_run": str(dry_run).lower()},
        headers={"If-Match": f'"{version}"'},
    )


def _path(database: str) -> str:
    return f"/schemas/{database}"


def _print_change(change: _Change, *, json: bool) -> None:
    if json:
        print_document(asdict(change))
        return
    for line in _lines(change):
        typer.echo(printable(line))


def _lines(change: _Change) -> Iterator[str]:
    if not change.differences:
        yield f"{change.database} has this schema already, in version {change.version}."
    for each in change.differences:
        yield _difference(change.database, each)
    for node, placed in change.placements.items():
        name = change.database if node == "*" else node
        moved = f" instead of {placed['before']}" if placed["before"] else ""
        yield f"{name} is placed on {placed['system']}{moved}: {placed['why']}"
    for move in change.moves:
        yield f"{move['node']} holds data that the change would move: {move['reason']}"
    for note in change.notes:
        yield f"Note: {note}"


def _difference(database: str, each: Difference) -> str:
    name = database if each.node == "*" else each.node
    sign = f"{_SIGNS[each.kind]} {name}"
    value = each.before if each.kind == "removed" else each.after
    if each.member is None:
        return f"{sign}  {_members(value)}".rstrip()
    if each.kind == "changed":
        return f"{sign}  {each.member}: {json_text(each.before)} → {json_text(value)}"
    return f"{sign}  {each.member}: {json_text(value)}"


def _members(members: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {json_text(value)}" for name, value in members.items())
