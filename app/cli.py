"""The command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from app.commands.consoles import errors
from mediator.embedded.directories import PRIVATE_UMASK

__all__ = ["COMMANDS", "command_line", "main"]

COMMANDS: Final = {
    "serve": "app.commands.serve:serve",
    "doctor": "app.commands.doctor.command:doctor",
    "demo": "app.commands.demo.command:demo",
    "verify": "app.commands.views:verify",
    "rebuild-view": "app.commands.views:rebuild_view",
    "verify-references": "app.commands.references:verify_references",
    "bench": "benchmarks.command:bench",
    "backup": "app.commands.archive:backup",
    "restore": "app.commands.archive:restore",
    "encode": "app.commands.encode:encode",
    "check-trace": "app.commands.check_trace:check_trace",
    "prove-coherence": "app.commands.prove_coherence:prove_coherence",
    "simulate": "sketch.instruments.simulate.command:simulate",
    "worker": "app.commands.worker:worker",
    "job": "app.commands.job:job",
    "key": "app.commands.key:key",
    "catalogue": "app.commands.catalogue:catalogue",
    "schema": "app.commands.schema:schema",
    "system": "app.commands.system:system",
    "admission": "app.commands.admission:admission",
    "why": "app.commands.why:why",
    "query": "app.commands.query:query",
    "update": "app.commands.filtered_writes:update",
    "delete": "app.commands.filtered_writes:delete",
    "import": "app.commands.transfer:import_",
    "export": "app.commands.transfer:export",
    "tail": "app.commands.tail:tail",
    "allocate": "app.commands.allocate:allocate",
    "standing": "app.commands.standing_spark:standing",
    "cluster": "app.commands.cluster:cluster",
    "continuous": "app.commands.continuous:continuous",
}
"""The function of each command, or its group of commands."""

CHECKOUT_COMMANDS: Final = frozenset({"bench"})
"""Commands that only a checkout of the repository has: an installed wheel lacks them."""

_HELP: Final = ("-h", "--help")
_INFORMATION: Final = {*_HELP, "--version"}


def main() -> None:
    """Run the command line, and import only the command that is called."""
    os.umask(PRIVATE_UMASK)
    names = sys.argv[1:2]
    if CHECKOUT_COMMANDS & {*names} and not is_here(names[0]):
        errors.print(f"`portolan {names[0]}` is a command of a checkout of the repository.")
        raise SystemExit(2)
    try:
        if names and not _INFORMATION & {*sys.argv}:
            _start()
        command_line(names if COMMANDS.keys() & names else filter(is_here, COMMANDS))()
    except ValueError as error:
        if not _is_about_settings(error):
            raise
        errors.print(f"Portolan cannot run: {error}")
        raise SystemExit(1) from None


def is_here(name: str) -> bool:
    return name not in CHECKOUT_COMMANDS or find_spec(COMMANDS[name].partition(".")[0]) is not None


def _start() -> None:
    from app.settings.known import unknown_settings  # noqa: PLC0415 - help must not wait for it
    from app.settings.telemetry import TelemetrySettings  # noqa: PLC0415 - as above
    from app.telemetry.log import start_logging  # noqa: PLC0415 - as above

    start_logging(TelemetrySettings().log_format)
    for warning in unknown_settings(os.environ):
        errors.print(f"Warning: {warning}")


def _is_about_settings(error: ValueError) -> bool:
    from pydantic import ValidationError  # noqa: PLC0415 - as above
    from pydantic_settings import SettingsError  # noqa: PLC0415 - as above

    return isinstance(error, (ValidationError, SettingsError))


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(_HELP)},
        help="Declare what your data needs; the right database serves it.",
    )
    app.callback()(_portolan)  # so that a single command keeps its name
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"portolan {metadata.version('portolan')}")
        raise typer.Exit


def _portolan(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
