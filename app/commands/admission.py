"""``portolan admission``: print, set and try out the rules of admission control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.commands.consoles import errors, print_document, print_result, printable
from app.commands.running import AdminUrl, Json, KeyFile, admin_service, read_bounded, read_document

__all__ = ["admission"]

admission = typer.Typer(
    no_args_is_help=True, help="Rules that keep load off a running service: docs/admission.md."
)

_MAX_BYTES: Final = 2**16

RulesFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="The rules, as text in UTF-8.")
]


@admission.command("show")
def show(*, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False) -> None:
    """Print the rules in force, as they were written."""
    with admin_service(url, key_file) as service:
        rules = service.request("GET", "/admission/rules")
    if json:
        print_document(rules)
        return
    typer.echo("".join(map(_visible, rules["text"])), nl=not rules["text"].endswith("\n"))
    errors.print(f"{len(rules['rules'])} rules, version {rules['version']}.")


@admission.command("put")
def put(
    file: RulesFile,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check them.")] = False,
    if_version: Annotated[
        int | None, typer.Option(min=0, help="Replace the rules of this version only.")
    ] = None,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Replace the rules; a file without rules ends all their effects.

    Mistakes are printed with line and column.
    """
    headers = {"content-type": "text/plain; charset=utf-8"}
    if if_version is not None:
        headers["if-match"] = f'"{if_version}"'
    with admin_service(url, key_file) as service:
        rules = service.request(
            "PUT",
            "/admission/rules",
            content=read_bounded(file, _MAX_BYTES, "file of rules"),
            headers=headers,
            params={"dry_run": dry_run},
        )
    state = "could be put in force" if dry_run else f"are in force, as version {rules['version']}"
    errors.print(f"{len(rules['rules'])} rules {state}.")


@admission.command("dry-run")
def dry_run(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Events and a snapshot, JSON or YAML."),
    ],
    *,
    rules: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The rules; by default those in force."),
    ] = None,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Print which rules would fire on events, and with which values."""
    document = read_document(file, _MAX_BYTES, "dry run")
    if rules is not None:
        text = read_bounded(rules, _MAX_BYTES, "file of rules")
        document["rules"] = text.decode("utf-8", "replace")
    with admin_service(url, key_file) as service:
        items = service.request("POST", "/admission/dry-run", json=document)["items"]
    print_result(items, map(_line, items), json=json)


@admission.command("log")
def log(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Entries at most.")] = 20,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Print the rules that have fired, newest first, with what they did."""
    with admin_service(url, key_file) as service:
        items = service.request("GET", "/admission/log", params={"limit": limit})["items"]
    print_result(items, map(_line, items), json=json)


def _line(item: Mapping[str, Any]) -> str:
    """Format a decision as one line; entries of the log begin with their time."""
    event, *subjects = item["event"].values()
    occurrence = " ".join([event, *(subject["id"] for subject in subjects)])
    actions = ", ".join(map(_action, item["actions"]))
    values = ", ".join(f"{value['text']}: {_value(value['value'])}" for value in item["values"])
    effect = actions if item["fires"] else "does not fire"
    time = f"{item['at']}  " if "at" in item else ""
    return f"{time}rule {item['rule']} (line {item['line']}) on {occurrence}: {effect}  [{values}]"


def _action(action: Mapping[str, Any]) -> str:
    arguments = ", ".join(map(_argument, action["arguments"]))
    outcome = f" ({action['outcome']})" if "outcome" in action else ""
    return f"{action['action']}({arguments}){outcome}"


def _argument(argument: Any) -> str:
    if isinstance(argument, dict):
        return str(argument.get("id", argument.get("name")))
    return "nothing" if argument is None else _value(argument)


def _value(value: Any) -> str:
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
    return str(value)


def _visible(character: str) -> str:
    return character if character in "\n\t" else printable(character)
