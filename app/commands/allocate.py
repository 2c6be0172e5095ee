"""``portolan allocate``: which machine each process should run on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from app.commands.consoles import print_document
from app.commands.running import mistakes_in_files, read_document

__all__ = ["allocate"]

_MAX_BYTES: Final = 2**22


def allocate(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Processes and machines: JSON or YAML."),
    ],
    *,
    objective: Annotated[
        Literal["communication", "cost"],
        typer.Option(help="Minimise the traffic between machines, or their cost."),
    ] = "communication",
    format_: Annotated[
        Literal["text", "json", "helm"],
        typer.Option("--format", help="Text, JSON, or values of the chart."),
    ] = "text",
    limit_s: Annotated[
        float, typer.Option("--limit-s", min=0.001, max=3600, help="Seconds for the solver.")
    ] = 10.0,
) -> None:
    """Allocate processes to machines whose memory they fit: docs/allocation.md."""
    from mediator.allocation.allocating import DoesNotFit
    from mediator.allocation.allocating import allocate as solve
    from mediator.allocation.model import Objective
    from mediator.allocation.parser import parse_workload
    from mediator.allocation.report import describe, helm_values, text
    from mediator.base.integer_program import SolverMissing

    target = Objective(objective)
    with mistakes_in_files(DoesNotFit, SolverMissing):
        workload = parse_workload(read_document(file, _MAX_BYTES, "file of processes"))
        allocation = solve(workload, target, limit_s)
    report = describe(workload, allocation, target)
    if format_ == "json":
        print_document(report)
    elif format_ == "helm":
        typer.echo(helm_values(workload, allocation), nl=False)
    else:
        typer.echo(text(report))
