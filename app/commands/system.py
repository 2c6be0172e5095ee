"""``portolan system``: list, drain, suspend and resume systems."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.commands.consoles import confirm, errors, print_result, printable
from app.commands.running import AdminUrl, Json, KeyFile, Yes, admin_service, check_name

__all__ = ["system"]

system = typer.Typer(no_args_is_help=True, help="Systems of a running service: docs/stores.md.")

Name = Annotated[str, typer.Argument(callback=check_name, help="The system.")]


@system.command("list")
def list_(*, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False) -> None:
    """List the systems, each with its kind, its state, and its use."""
    with admin_service(url, key_file) as service:
        systems = service.request("GET", "/systems")["items"]
    width = max((len(system_["name"]) for system_ in systems), default=0)
    lines = (
        f"{system_['name']:{width}}  {system_['kind']:10}  {system_['state']:13}  {system_['use']}"
        for system_ in systems
    )
    print_result(systems, lines, json=json)


@system.command("moves")
def moves(
    name: Name, *, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False
) -> None:
    """List the nodes on a system, and where they would be placed if the system were drained."""
    with admin_service(url, key_file) as service:
        items = _moves(service, name)
    print_result(items, map(_line, items), json=json)


@system.command("drain")
def drain(name: Name, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Place nothing more on a system, and list where its nodes would be placed.

    The nodes stay there, and in use.
    """
    with admin_service(url, key_file) as service:
        _use(service, name, "draining")
        for move in _moves(service, name):
            typer.echo(printable(_line(move)))
    errors.print(f"{name} is draining.")


@system.command("suspend")
def suspend(
    name: Name, *, url: AdminUrl = None, key_file: KeyFile = None, yes: Yes = False
) -> None:
    """Print which classes need a system, ask, and stop using it, as for its maintenance.

    Requests that need it are refused until it is resumed.
    """
    with admin_service(url, key_file) as service:
        nodes = sorted({f"{move['database']}.{move['node']}" for move in _moves(service, name)})
        for node in nodes:
            typer.echo(printable(node))
        confirm(f"Refuse all requests that need {name}?", yes=yes)
        _use(service, name, "suspended")
    errors.print(f"{name} is suspended.")


@system.command("resume")
def resume(name: Name, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Resume the full use of a system that was draining or suspended."""
    with admin_service(url, key_file) as service:
        _use(service, name, "full")
    errors.print(f"{name} is used in full.")


def _use(service: Any, name: str, use: str) -> None:
    service.request("PATCH", f"/systems/{name}", json={"use": use})


def _moves(service: Any, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = service.request("GET", f"/systems/{name}/moves")["items"]
    return items


def _line(move: dict[str, Any]) -> str:
    to = move["proposed"] or "no other system"
    return f"{move['database']}.{move['node']}  → {to}: {move['why']}"
