"""``portolan allocate``: which machine each process should run on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from app.commands.consoles import print_document
from app.commands.running import mistakes_in_files, read_document

__all__ = ["allocate"]

_MOST_BYTES: Final = 2**22


class Target(StrEnum):
    COMMUNICATION = "communication"
    COST = "cost"


class AllocationFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    HELM = "helm"


def allocate(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Processes and machines: JSON or YAML."),
    ],
    *,
    objective: Annotated[
        Target, typer.Option(help="Least traffic between machines, or the cheapest machines.")
    ] = Target.COMMUNICATION,
    format_: Annotated[
        AllocationFormat, typer.Option("--format", help="Text, JSON, or values of the chart.")
    ] = AllocationFormat.TEXT,
    limit_s: Annotated[
        float, typer.Option("--limit-s", min=0.001, max=3600, help="Seconds for the solver.")
    ] = 10.0,
) -> None:
    """Allocate processes to machines whose memory they fit: docs/allocation.md."""
    from mediator.allocation.allocating import DoesNotFit
    from mediator.allocation.allocating import allocate as allocated_by
    from mediator.allocation.model import Objective
    from mediator.allocation.parser import parse_workload
    from mediator.allocation.report import describe, helm_values, text
    from mediator.base.integer_program import SolverMissing

    target = Objective(objective.value)
    with mistakes_in_files(DoesNotFit, SolverMissing):
        workload = parse_workload(read_document(file, _MOST_BYTES, "file of processes"))
        allocated = allocated_by(workload, target, limit_s)
    report = describe(workload, allocated, target)
    if format_ is AllocationFormat.JSON:
        print_document(report)
    elif format_ is AllocationFormat.HELM:
        typer.echo(helm_values(workload, allocated), nl=False)
    else:
        typer.echo(text(report))
