"""The consoles of commands: standard output for results, standard error for messages."""

from __future__ import annotations

from typing import Any, Final

import typer
from rich.console import Console

__all__ = ["console", "errors", "json_text", "print_document", "printable"]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)


def printable(text: str) -> str:
    """Escape what a terminal would obey: texts of others, as the values of objects, may hold it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_document(document: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def json_text(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()
