"""``portolan schema openapi`` and ``typescript``: describe a database's classes to programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.commands.running import (
    NOT_DONE,
    Database,
    DataUrl,
    KeyFile,
    data_service,
    readable_errors,
)

__all__ = ["openapi", "typescript"]

Classes = Annotated[
    list[str] | None,
    typer.Option("--class", metavar="CLASS", help="Only this class; repeatable."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A file, which is written atomically; else stdout."),
]


def openapi(
    database: Database,
    *,
    class_names: Classes = None,
    output: Output = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Print the OpenAPI document of a database, with the classes that the key may read."""
    import orjson

    document = _document(database, class_names, url, key_file)
    _write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), output)


def typescript(
    database: Database,
    *,
    class_names: Classes = None,
    output: Output = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Print the classes of a database as TypeScript types: docs/contracts.md."""
    from app.commands.typescript import declarations

    document = _document(database, class_names, url, key_file)
    _write(declarations(database, document).encode(), output)


def _document(
    database: str, class_names: list[str] | None, url: str | None, key_file: Path | None
) -> dict[str, Any]:
    parameters = {"class": ",".join(class_names)} if class_names else {}
    with data_service(url, key_file) as service:
        return service.request("GET", f"/{database}/openapi.json", params=parameters)


def _write(content: bytes, output: Path | None) -> None:
    from spark_jobs.atomic_file import atomic_file

    if output is None:
        typer.echo(content, nl=False)
        return
    with readable_errors(NOT_DONE, OSError), atomic_file(output) as file:
        file.write(content)
