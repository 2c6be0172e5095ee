"""``portolan check-trace``: how stale the reads of a trace were."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.commands.consoles import errors

__all__ = ["check_trace"]


def check_trace(
    file: Annotated[Path, typer.Argument(help="Reads and writes, one JSON object in each line.")],
    *,
    delta: Annotated[
        float | None, typer.Option(help="The bound, in seconds; exit with 1 if a read breaks it.")
    ] = None,
    ack: Annotated[
        bool, typer.Option(help="Compare reads with acknowledged writes, not with other reads.")
    ] = False,
    json: Annotated[bool, typer.Option(help="Print one JSON object.")] = False,
) -> None:
    """Find the smallest Δ for which a trace is Δ-atomic, and its stalest reads.

    docs/instruments.md describes the lines. Exits with 1 if the trace does not hold, with 2 if it
    cannot be read.
    """
    from sketch.instruments.trace.check import check_trace as check

    try:
        text, status = check(file, delta, "ack" if ack else "vis", as_json=json)
    except (OSError, ValueError) as error:
        errors.print(f"The trace cannot be checked: {error}")
        raise typer.Exit(2) from None
    typer.echo(text)
    raise typer.Exit(status)
