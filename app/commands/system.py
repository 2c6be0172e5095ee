"""``portolan system``: systems listed, drained, suspended and resumed."""

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
    """List the systems, each with its kind, whether it answers, and what it is used for."""
    with admin_service(url, key_file) as service:
        systems = service.request("GET", "/systems")["items"]
    width = max((len(each["name"]) for each in systems), default=0)
    lines = (
        f"{each['name']:{width}}  {each['kind']:10}  {each['state']:13}  {each['use']}"
        for each in systems
    )
    print_result(systems, lines, json=json)


@system.command("moves")
def moves(
    name: Name, *, url: AdminUrl = None, key_file: KeyFile = None, json: Json = False
) -> None:
    """List what is on a system, and where it would be placed if the system were drained."""
    with admin_service(url, key_file) as service:
        found = _moves(service, name)
    print_result(found, map(_line, found), json=json)


@system.command("drain")
def drain(name: Name, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Place nothing else on a system, and list where what is there would be placed.

    What is there stays, and is used.
    """
    with admin_service(url, key_file) as service:
        _use(service, name, "draining")
        for each in _moves(service, name):
            typer.echo(printable(_line(each)))
    errors.print(f"{name} is draining.")


@system.command("suspend")
def suspend(
    name: Name, *, url: AdminUrl = None, key_file: KeyFile = None, yes: Yes = False
) -> None:
    """Print which classes need a system, ask, and call it no more, as for its maintenance.

    Requests that need it are refused until it is resumed.
    """
    with admin_service(url, key_file) as service:
        nodes = sorted({f"{each['database']}.{each['node']}" for each in _moves(service, name)})
        for node in nodes:
            typer.echo(printable(node))
        confirm(f"Refuse all requests that need {name}?", yes=yes)
        _use(service, name, "suspended")
    errors.print(f"{name} is suspended.")


@system.command("resume")
def resume(name: Name, *, url: AdminUrl = None, key_file: KeyFile = None) -> None:
    """Use a system in full again, that was draining or suspended."""
    with admin_service(url, key_file) as service:
        _use(service, name, "full")
    errors.print(f"{name} is used in full.")


def _use(service: Any, name: str, use: str) -> None:
    service.request("PATCH", f"/systems/{name}", json={"use": use})


def _moves(service: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.request("GET", f"/systems/{name}/moves")["items"]
    return found


def _line(move: dict[str, Any]) -> str:
    to = move["proposed"] or "no other system"
    return f"{move['database']}.{move['node']}  → {to}: {move['why']}"
