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

_TIMEOUT_S: Final = 300.0
"""Checking and backfilling objects takes a minute each, at most, and the check comes twice."""

Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Do not check objects by constraints that are added.")
]
Backfill = Annotated[
    bool, typer.Option("--backfill", help="Give objects the defaults of required fields.")
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="CLASS", help="Drop a class with its objects; may be given again."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
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
        violations: What else does: objects that break constraints which it adds.
    """

    database: str
    version: int
    differences: list[Difference]
    placements: dict[str, Any]
    moves: list[dict[str, Any]]
    violations: list[dict[str, Any]]
    notes: list[str]

    @property
    def is_refused(self) -> bool:
        return bool(self.moves or self.violations)


@schema.command("list")
def list_(*, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False) -> None:
    """List the databases, each with the version of its schema, its mode and its classes."""
    with admin_service(url, key_file) as service:
        databases = service.request("GET", "/schemas")["items"]
    if json:
        print_document(databases)
        return
    width = max((len(each["name"]) for each in databases), default=0)
    for each in databases:
        classes = ", ".join(each["classes"])
        typer.echo(f"{each['name']:{width}}  {each['version']:4}  {each['mode']:12}  {classes}")


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
    unchecked: Unchecked = False,
    backfill: Backfill = False,
    drop: Drop = None,
) -> None:
    """Print what a schema would change, and where it would be placed; nothing happens.

    Ends with 1 if the service would refuse the change.
    """
    document = read_json_file(file, _MAX_BYTES, "schema")
    with admin_service(url, key_file) as service:
        change = _Schema(service, database, document, unchecked, backfill, drop).change()
    _print_change(change, json=json)
    raise typer.Exit(1 if change.is_refused else 0)


@schema.command("apply")
def apply(
    database: Database,
    file: File,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
    yes: Yes = False,
    unchecked: Unchecked = False,
    backfill: Backfill = False,
    drop: Drop = None,
) -> None:
    """Print what a schema changes, ask, and put it in force.

    It is refused if the schema has been changed since the changes were printed.
    """
    if dry_run:
        options = {"unchecked": unchecked, "backfill": backfill}
        diff(database, file, url=url, key_file=key_file, json=json, drop=drop, **options)
    document = read_json_file(file, _MAX_BYTES, "schema")
    with admin_service(url, key_file) as service:
        new = _Schema(service, database, document, unchecked, backfill, drop)
        change = new.change()
        _print_change(change, json=json)
        if change.is_refused:
            reason = "existing data would move" if change.moves else "objects would break it"
            errors.print(f"{NOT_DONE}: {reason}.")
            raise typer.Exit(1)
        # What was backfilled in part goes on under the same schema.
        if not (change.differences or change.placements or backfill):
            return
        _confirm("Put it in force?", yes=yes)
        done = new.put(change.version)
    version = done["version"]
    for line in _objections(done):
        errors.print(printable(line), markup=False, soft_wrap=True)
    errors.print(f"{database} has version {version} of its schema now.", markup=False)


@schema.command("drop")
def drop_(
    database: Database, *, url: AdminUrl = None, key_file: KeyFile = None, yes: Yes = False
) -> None:
    """Print how many objects a database has, ask, and drop it with all of them."""
    with admin_service(url, key_file) as service:
        dry_run = {"dry_run": "true"}
        objects = service.request("DELETE", _path(database), params=dry_run)["objects"]
        for name, count in objects.items():
            typer.echo(f"- {name}, objects: {count:,}")
        _confirm(f"Drop {database} with all of that?", yes=yes)
        service.request("DELETE", _path(database))
    errors.print(f"{database} is dropped.", markup=False)


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("Without a terminal to ask at, --yes is required.")
    typer.confirm(question, abort=True, err=True)


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema that may be put in force; the members after it are options of the request."""

    service: ServiceClient
    database: str
    document: dict[str, Any]
    unchecked: bool
    backfill: bool
    drop: list[str] | None

    def change(self) -> _Change:
        from app.commands.schema_differences import differences

        present = _present(self.service, self.database)
        new = self.put(present["version"], dry_run=True)
        return _Change(
            self.database,
            present["version"],
            differences(present["schema"], new["schema"]),
            {
                node: {**placed, "before": before}
                for node, placed in new["placements"].items()
                if (before := present["placements"].get(node, {}).get("system")) != placed["system"]
            },
            new["moves"],
            new["violations"],
            new["notes"],
        )

    def put(self, version: int, *, dry_run: bool = False) -> dict[str, Any]:
        """Put it in force, if the version in force is the one given."""
        options = {"dry_run": dry_run, "unchecked": self.unchecked, "backfill": self.backfill}
        return self.service.request(
            "PUT",
            _path(self.database),
            json=self.document,
            params={n: str(v).lower() for n, v in options.items()} | {"drop": self.drop or []},
            headers={"If-Match": f'"{version}"'},
            timeout=_TIMEOUT_S,
        )


def _present(service: ServiceClient, database: str) -> dict[str, Any]:
    from app.commands.service_client import ServiceRefused

    try:
        return service.request("GET", _path(database))
    except ServiceRefused as refused:
        if refused.problem.get("type") != "/problems/not-found":
            raise
        return {"version": 0, "schema": {}, "placements": {}}


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
    yield from _objections({"violations": change.violations, "notes": change.notes})


def _objections(answer: Mapping[str, Any]) -> Iterator[str]:
    for each in answer["violations"]:
        named = f", such as {', '.join(each['sample'])}" if each["sample"] else ""
        broken = f"{each['location']}/{each['constraint']}"
        yield f"Objects that break {broken}: {each['count']:,} of {each['checked']:,}{named}"
    for note in answer["notes"]:
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
