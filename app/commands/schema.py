"""``portolan schema``: print, compare, apply and drop schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from app.commands.consoles import (
    confirm,
    confirm_name,
    errors,
    print_document,
    print_result,
    printable,
)
from app.commands.contracts import openapi, typescript
from app.commands.copies import copy
from app.commands.new_schema import ApplyOptions, NewSchema, schema_path
from app.commands.proposed_indexes import proposal, proposals
from app.commands.reconnection import Reconnection
from app.commands.running import (
    NOT_DONE,
    AdminUrl,
    Database,
    Json,
    KeyFile,
    Yes,
    admin_service,
)
from app.commands.schema_change import (
    difference_line,
    objections,
    revision_line,
)
from app.commands.schema_files import read_schema, read_schemas
from app.commands.schema_versions import pinned, retire
from app.commands.service_client import ServiceClient

__all__ = ["schema"]

schema = typer.Typer(no_args_is_help=True, help="Schemas of a running service: docs/schema.md.")
schema.command("openapi")(openapi)
schema.command("typescript")(typescript)
schema.command("copy")(copy)
schema.command("pinned")(pinned)
schema.command("retire")(retire)

Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Do not check objects against added constraints.")
]
Backfill = Annotated[
    bool, typer.Option("--backfill", help="Give objects the defaults of required fields.")
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLASS[.FIELD]", help="Drop a class or a field with its data; repeatable."
    ),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="CLASS.OLD:NEW", help="Rename a field and keep its values; repeatable."),
]
Move = Annotated[
    list[str] | None,
    typer.Option(metavar="COPY", help="Drop the source of a finished `copy`; repeatable."),
]
_COSTLY_QUERIES: Final = "docs/admin-api.md, Costly queries"
_FILES: Final = typer.Argument(
    exists=True,
    dir_okay=False,
    metavar="FILE",
    help="The schema, in JSON or (*.yaml) YAML; several files divide the classes.",
)
Files = Annotated[list[Path], _FILES]
Revision = Annotated[int | None, typer.Option(min=1, help="A former version; see `history`.")]


@schema.command("list")
def list_(*, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False) -> None:
    """List the databases, each with the version of its schema, its mode and its classes."""
    with admin_service(url, key_file) as service:
        databases = service.request("GET", "/schemas")["items"]
    width = max((len(database["name"]) for database in databases), default=0)
    lines = (
        f"{database['name']:{width}}  {database['version']:4}  {database['mode']:12}"
        f"  {', '.join(database['classes'])}"
        for database in databases
    )
    print_result(databases, lines, json=json)


@schema.command("show")
def show(
    database: Database,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    revision: Revision = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML.")] = False,
) -> None:
    """Print the schema in force, complete with defaults, in the form that `apply` reads."""
    from app.commands.yaml_text import yaml_text

    with admin_service(url, key_file) as service:
        document = service.request("GET", schema_path(database, revision))["schema"]
    if yaml:
        typer.echo(yaml_text(document), nl=False)
    else:
        print_document(document)


@schema.command("history")
def history(
    database: Database, *, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False
) -> None:
    """List the last versions of a schema: when each was set, what it changed, and by whom.

    The newest comes first. +, -, ~ and → count the nodes added, removed, changed and renamed.
    """
    with admin_service(url, key_file) as service:
        revisions = list(_revisions(service, database))
    print_result(revisions, map(revision_line, revisions), json=json)


@schema.command("diff")
def diff(
    database: Database,
    files: Annotated[list[Path] | None, _FILES] = None,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
    unchecked: Unchecked = False,
    backfill: Backfill = False,
    drop: Drop = None,
    rename: Rename = None,
    move: Move = None,
    revision: Revision = None,
) -> None:
    """Print what a schema would change, and where it would be placed; change nothing.

    Exits with 1 if the service would refuse the change. With `--revision` instead of files: print
    the changes since then.
    """
    if (files is None) is (revision is None):
        raise typer.BadParameter("Either files or --revision are required.")
    if revision is not None:
        _print_since(database, revision, url=url, key_file=key_file, json=json)
        return
    document = read_schema(files or [])
    with admin_service(url, key_file) as service:
        options = ApplyOptions(unchecked, backfill, drop or [], rename or [], move or [])
        _show(NewSchema(service, database, document, options), json=json)


def _show(new: NewSchema, *, json: bool) -> NoReturn:
    """Print what a schema would change, and exit with 1 if the service would refuse it."""
    change = new.change()
    print_result(asdict(change), change.lines(), json=json)
    raise typer.Exit(1 if change.is_refused else 0)


@schema.command("apply")
def apply(
    database: Database,
    files: Files,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
    yes: Yes = False,
    unchecked: Unchecked = False,
    backfill: Backfill = False,
    drop: Drop = None,
    rename: Rename = None,
    move: Move = None,
) -> None:
    """Print what a schema changes, ask, and put it in force.

    It is refused if the schema has been changed since the changes were printed.
    """
    document = read_schema(files)
    with admin_service(url, key_file) as service:
        options = ApplyOptions(unchecked, backfill, drop or [], rename or [], move or [])
        new = NewSchema(service, database, document, options)
        if dry_run:
            _show(new, json=json)
        _put_in_force(new, json=json, yes=yes)


@schema.command("deploy")
def deploy(
    directory: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Holds a file for each database: shop.yaml."
        ),
    ],
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    yes: Yes = False,
    wait: Annotated[
        int, typer.Option(min=0, help="Seconds to wait for a service that does not answer yet.")
    ] = 0,
) -> None:
    """Put the schemas of a directory in force, each from a file with the name of its database.

    Schemas that are in force already stay unchanged, so a call can be repeated. It ends at the
    first schema that is refused; the schemas before it are in force then.
    """
    schemas = read_schemas(directory)
    with admin_service(url, key_file) as service:
        reconnection = Reconnection(wait)
        reconnection.answered()  # as if it had been up, so that `wait` applies
        reconnection.repeat(lambda: service.request("GET", "/schemas"))
        for database, document in schemas.items():
            new = NewSchema(service, database, document, ApplyOptions())
            _put_in_force(new, json=False, yes=yes)


@schema.command("index")
def index(
    database: Database,
    index: Annotated[
        str | None,
        typer.Argument(metavar="CLASS.FIELD[,FIELD]…", help="The proposal to put in force."),
    ] = None,
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
    yes: Yes = False,
) -> None:
    """List the indexes that would help costly queries, or add one of them.

    Without INDEX: print each with the queries that it would help, which were slow or refused since
    the service started. With it: print what the schema changes, ask, and put it in force, as
    `apply` does.
    """
    with admin_service(url, key_file) as service:
        current = service.request("GET", schema_path(database))["schema"]
        candidates = proposals(service, database)
        if index is None:
            lines = chain.from_iterable(candidate.lines() for candidate in candidates)
            print_result([asdict(candidate) for candidate in candidates], lines, json=json)
            if not (candidates or json):
                errors.print(f"No index is proposed for {database}: {_COSTLY_QUERIES}.")
            return
        document = proposal(candidates, index).added_to(current)
        new = NewSchema(service, database, document, ApplyOptions())
        if dry_run:
            _show(new, json=json)
        _put_in_force(new, json=json, yes=yes)


def _put_in_force(new: NewSchema, *, json: bool, yes: bool) -> None:
    change = new.change()
    print_result(asdict(change), change.lines(), json=json)
    if change.is_refused:
        reason = "existing data would move" if change.moves else "objects would break it"
        errors.print(f"{NOT_DONE}: {reason}.")
        raise typer.Exit(1)
    # A partial backfill continues under an unchanged schema.
    if not (change.differences or change.placements or new.options.backfill):
        return
    confirm("Put it in force?", yes=yes)
    answer = new.put_in_force(change.version)
    version = answer["version"]
    for line in objections(answer["violations"], answer["notes"]):
        errors.print(printable(line))
    errors.print(f"{new.database} has version {version} of its schema now.")


@schema.command("drop")
def drop_(
    database: Database, *, url: AdminUrl = None, key_file: KeyFile = None, yes: Yes = False
) -> None:
    """Print how many objects a database has, ask for its name, and drop it with all of them.

    It is refused if the schema has been changed since the count.
    """
    with admin_service(url, key_file) as service:
        version = service.request("GET", schema_path(database))["version"]
        dry_run = {"dry_run": "true"}
        objects = service.request("DELETE", schema_path(database), params=dry_run)["objects"]
        for name, count in objects.items():
            typer.echo(f"- {name}, objects: {count:,}")
        question = f"Type {database} to drop it with all of that"
        confirm_name(question, database, yes=yes)
        service.request("DELETE", schema_path(database), headers={"If-Match": f'"{version}"'})
    errors.print(f"{database} is dropped.")


def _revisions(service: ServiceClient, database: str) -> Iterator[dict[str, Any]]:
    before: int | None = None
    while True:
        parameters = {} if before is None else {"before": before}
        page = service.request("GET", f"{schema_path(database)}/revisions", params=parameters)
        yield from page["items"]
        before = page["next"]
        if before is None:
            return


def _print_since(
    database: str, revision: int, *, url: str | None, key_file: Path | None, json: bool
) -> None:
    from mediator.schema.differences import differences

    with admin_service(url, key_file) as service:
        former = service.request("GET", schema_path(database, revision))
        current = service.request("GET", schema_path(database))
    changes = differences(former["schema"], current["schema"])
    versions = {"database": database, "revision": revision, "version": current["version"]}
    document = {**versions, "differences": [asdict(change) for change in changes]}
    lines = [difference_line(database, change) for change in changes]
    unchanged = [f"{database} has the schema of revision {revision}."]
    print_result(document, lines or unchanged, json=json)
