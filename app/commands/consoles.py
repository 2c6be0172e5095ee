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
    "progress_display",
]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Escape control characters: foreign text, such as the values of objects, can contain them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless `yes` is set; raises `typer.Abort`."""
    if yes:
        return
    _require_terminal()
    typer.confirm(question, abort=True, err=True)


def confirm_name(question: str, name: str, *, yes: bool) -> None:
    """Like `confirm`, but the name must be typed, as one letter is pressed too easily."""
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
    """Print a document as JSON, or else as lines, which are evaluated only then."""
    if json:
        print_document(document)
        return
    for line in lines:
        typer.echo(printable(line))


def json_text(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()


@contextmanager
def progress_display() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress as a text, if standard error is a terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    is_terminal = errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=not is_terminal) as progress:
        bar = progress.add_task("", total=None)
        yield lambda text: progress.update(bar, description=text)
