"""``portolan schema``: schemas of a running service, shown, compared, applied and dropped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from app.commands.consoles import confirm, console, errors
from app.commands.running import AdminUrl, KeyFile, at_admin_port

if TYPE_CHECKING:
    from app.commands.remote import RemoteService

__all__ = ["schema"]

schema = typer.Typer(no_args_is_help=True, help="Schemas of a running service: docs/schema.md.")

_LARGEST: Final = 16 * 2**20
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}

Database = Annotated[str, typer.Argument(help="The database.")]
File = Annotated[Path, typer.Argument(help="The schema as JSON; - reads standard input.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@schema.command("list")
def list_(*, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """List the databases: name, version of the schema, mode, classes."""
    from rich.table import Table

    with at_admin_port(url, key_file) as service:
        databases = service.document("GET", "/schemas")["items"]
    table = Table(box=None, pad_edge=False)
    for heading in ("database", "version", "mode", "classes"):
        table.add_column(heading, overflow="fold")
    for each in databases:
        classes = ", ".join(each["classes"])
        table.add_row(each["name"], str(each["version"]), each["mode"], classes)
    console.print(table)


@schema.command("show")
def show(database: Database, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Print a schema with all defaults, as JSON."""
    with at_admin_port(url, key_file) as service:
        _print_json(service.document("GET", _path(database))["schema"])


@schema.command("diff")
def diff(database: Database, file: File, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Show what applying a schema would do; nothing is changed.

    Ends with 1 if it would be refused.
    """
    document = _read(file)
    with at_admin_port(url, key_file) as service:
        if _is_refused(_Proposal(service, database, document).show()):
            raise typer.Exit(1)


@schema.command("apply")
def apply(
    database: Database,
    file: File,
    *,
    yes: Yes = False,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not check the objects that are there.")
    ] = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Show what a schema changes, ask, and put it in force.

    It is refused if somebody else has changed the schema since it was shown.
    """
    document = _read(file)
    with at_admin_port(url, key_file) as service:
        proposal = _Proposal(service, database, document, unchecked=unchecked)
        effect = proposal.show()
        if _is_refused(effect):
            raise typer.Exit(1)
        if not proposal.changes:
            return
        confirm("Apply it?", yes=yes)
        _print_notes(proposal.apply())


@schema.command("drop")
def drop(
    database: Database, *, yes: Yes = False, url: AdminUrl = None, key_file: KeyFile = None
) -> None:
    """Drop a database with all its objects, after showing how many there are."""
    with at_admin_port(url, key_file) as service:
        objects = service.document("DELETE", _path(database), params={"dry_run": "true"})["objects"]
        for name, count in objects.items():
            console.print(f"- {name}, objects: {count:,}", style="red", markup=False)
        confirm(f"Drop {database} with all of them?", yes=yes)
        service.document("DELETE", _path(database))
    console.print(f"{database} is dropped.", markup=False)


class _Proposal:
    """A schema that may be applied to a database, and what it would change."""

    def __init__(
        self,
        service: RemoteService,
        database: str,
        document: Any,
        *,
        unchecked: bool = False,
    ) -> None:
        self._service = service
        self._path = _path(database)
        self._document = document
        self._unchecked = str(unchecked).lower()
        self._present, self._version = self._in_force()
        self.changes = False

    def show(self) -> Mapping[str, Any]:
        """Print what it changes and where; return the answer of the dry run."""
        from app.commands.schema_differences import differences

        effect = self._send(dry_run="true")
        before = self._present and self._present["schema"]
        found = differences(before, effect["schema"])
        self.changes = bool(found)
        for each in found:
            console.print(str(each), style=_COLOURS[each.kind], markup=False, soft_wrap=True)
        if not found:
            console.print("Nothing changes.")
        old = self._present["placements"] if self._present else {}
        for node, now in effect["placements"].items():
            was = old.get(node)
            if "." in node and (was is None or was["system"] != now["system"]):
                moved = "" if was is None else f" (was {was['system']})"
                _print(f"  {node} on {now['system']}{moved}: {now['why']}")
        _print_notes(effect)
        return effect

    def apply(self) -> Mapping[str, Any]:
        answer = self._send()
        _print(f"Version {answer['version']} is in force.")
        return answer

    def _in_force(self) -> tuple[Mapping[str, Any] | None, str]:
        from app.commands.remote import ServiceRefused

        try:
            document, headers = self._service.answer("GET", self._path)
        except ServiceRefused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None, '"0"'
        return document, headers["etag"]

    def _send(self, **parameters: str) -> Mapping[str, Any]:
        return self._service.document(
            "PUT",
            self._path,
            json=self._document,
            params={"unchecked": self._unchecked, **parameters},
            headers={"If-Match": self._version},
        )


_NOT_FOUND: Final = 404


def _is_refused(effect: Mapping[str, Any]) -> bool:
    """Print why a change would be refused, if it would be."""
    for move in effect["moves"]:
        errors.print(f"Existing data would move: {_value(move)}", markup=False, soft_wrap=True)
    for each in effect["violations"]:
        named = f", such as {', '.join(each['sample'])}" if each["sample"] else ""
        text = f"Objects that break {each['location']}/{each['constraint']}: {each['count']:,}"
        errors.print(f"{text}{named}.", markup=False, soft_wrap=True)
    if refused := bool(effect["moves"] or effect["violations"]):
        errors.print("It would be refused.")
    return refused


def _print_notes(answer: Mapping[str, Any]) -> None:
    for note in answer["notes"]:
        _print(f"Note: {note}")


def _print(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _path(database: str) -> str:
    return f"/schemas/{quote(database, safe='')}"


def _read(file: Path) -> Any:
    import orjson

    with _opened(file) as stream:
        text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise typer.BadParameter(f"{file} is longer than {_LARGEST:,} bytes.")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"{file} is no JSON: {error}.") from None


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from None


def _print_json(document: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def _value(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()
