"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.commands.consoles import errors
from app.telemetry.log import start_logging
from app.telemetry.settings import TelemetrySettings

__all__ = ["COMMANDS", "command_line", "main"]

COMMANDS: Final = {
    "serve": "app.commands.serve:serve",
    "doctor": "app.commands.doctor:doctor",
    "demo": "app.commands.demo:demo",
    "verify": "app.commands.upkeep:verify",
    "rebuild-primary": "app.commands.upkeep:rebuild_primary",
    "bench": "app.commands.bench:bench",
    "backup": "app.commands.archive:backup",
    "restore": "app.commands.archive:restore",
    "encode": "app.commands.encode:encode",
    "check-trace": "app.commands.check_trace:check_trace",
    "prove-coherence": "app.commands.prove_coherence:prove_coherence",
    "simulate": "sketch.simulate.command:simulate",
    "worker": "app.commands.worker:worker",
    "job": "app.commands.job:job",
    "key": "app.commands.key:key",
    "catalogue": "app.commands.catalogue:catalogue",
}
"""Where each command is; those of the last three have commands of their own."""


def main() -> None:
    """Run the command line; of the commands, only the one that is called is imported."""
    called = sys.argv[1:2]
    try:
        start_logging(TelemetrySettings().log_format)
        command_line(called if COMMANDS.keys() & called else COMMANDS)()
    except (ValidationError, SettingsError) as error:
        errors.print(f"Portolan cannot run: {error}", markup=False)
        raise SystemExit(1) from None


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return a command line with the commands of these names."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Declare what your data needs; the right database serves it.",
    )
    app.callback()(_portolan)  # so that one command alone still has its name
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _portolan() -> None:
    pass
