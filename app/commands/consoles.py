"""The consoles of commands: standard output for results, standard error for messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console

__all__ = [
    "confirm",
    "confirm_name",
    "console",
    "errors",
    "json_text",
    "print_document",
    "print_result",
    "printable",
    "shown_progress",
]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Escape what a terminal would obey: texts of others, as the values of objects, may hold it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless that was said with the command; raises `typer.Abort`."""
    if yes:
        return
    _require_terminal()
    typer.confirm(question, abort=True, err=True)


def confirm_name(question: str, name: str, *, yes: bool) -> None:
    """Ask for a name to be typed, where a letter is pressed too easily; as `confirm`."""
    if yes:
        return
    _require_terminal()
    if typer.prompt(question, err=True) != name:
        errors.print("That is not its name; nothing was done.")
        raise typer.Exit(1)


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("Without a terminal to ask at, --yes is required.")


def print_document(document: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def print_result(document: Any, lines: Iterable[str], *, json: bool) -> None:
    """Print a document for programs, or else what it says, in lines that are made only then."""
    if json:
        print_document(document)
        return
    for line in lines:
        typer.echo(printable(line))


def json_text(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()


@contextmanager
def shown_progress() -> Iterator[Callable[[str], None]]:
    """Show how far long work is, in the words that are passed, if anybody looks."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    shown = errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=not shown) as progress:
        bar = progress.add_task("", total=None)
        yield lambda text: progress.update(bar, description=text)
