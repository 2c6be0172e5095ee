"""The consoles of commands: standard output for results, standard error for messages."""

from __future__ import annotations

import sys
from typing import Final

import typer
from rich.console import Console

__all__ = ["confirm", "console", "errors"]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless that is known; end the command if it may not."""
    if yes:
        return
    if not sys.stdin.isatty():
        errors.print("Nothing was done: pass --yes where nobody can be asked.")
        raise typer.Exit(2)
    typer.confirm(question, abort=True)
