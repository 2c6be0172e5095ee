"""``portolan continuous``: plan, execute and calibrate continuous queries."""

from __future__ import annotations

from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from app.commands.consoles import errors, print_document
from app.commands.running import (
    NOT_DONE,
    mistakes_in_files,
    parse_lines,
    read_document,
    readable_errors,
)
from mediator.embedded.directories import DataDirectoryBusy

if TYPE_CHECKING:
    from mediator.continuous.model import Query
    from mediator.continuous.planning import Plan, PlanOptions

__all__ = ["continuous"]

continuous = typer.Typer(
    no_args_is_help=True,
    help="Windows over streams, on Spark or in PostgreSQL: docs/continuous-queries.md.",
)

_MAX_BYTES: Final = 2**20
_MAX_RATES: Final = 200
_MAX_RATE: Final = 1e9


File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A continuous query: JSON or YAML.")
]
CostsFile = Annotated[
    Path | None,
    typer.Option("--costs", exists=True, dir_okay=False, help="The output of `calibrate`."),
]
Rate = Annotated[float, typer.Option(min=1e-6, max=_MAX_RATE, help="A factor for all rates.")]
Trigger = Annotated[
    float | None,
    typer.Option(
        "--trigger-s", min=0.01, max=86_400, help="Seconds of a micro-batch; by default a slide."
    ),
]
Cores = Annotated[
    float,
    typer.Option(min=0.1, max=1e6, help="Operators that the machine executes at the same time."),
]
Pipelined = Annotated[
    bool, typer.Option("--pipelined", help="Each operator has its own core, as in the paper.")
]
Reorder = Annotated[bool, typer.Option(help="Whether joins may be reordered.")]
Divide = Annotated[bool, typer.Option(help="Whether large queries are divided into subplans.")]


@continuous.command()
def plan(
    file: File,
    *,
    rate: Rate = 1.0,
    sweep: Annotated[
        str | None,
        typer.Option(help="Plan at several rates: factors as first:last:count, or with commas."),
    ] = None,
    costs: CostsFile = None,
    trigger_s: Trigger = None,
    cores: Cores = 1.0,
    pipelined: Pipelined = False,
    reorder: Reorder = True,
    divide: Divide = True,
    format_: Annotated[
        Literal["text", "json", "svg"], typer.Option("--format", help="Text, JSON, or a drawing.")
    ] = "text",
) -> None:
    """Print where each operator runs, what flows through it, and whether the plan keeps up."""
    from app.commands.continuous_view import plan_text, sweep_text
    from app.commands.continuous_view_svg import plan_drawing, sweep_drawing
    from mediator.continuous.phase_two import TooManyPlans
    from mediator.continuous.planning import make_plan
    from mediator.continuous.report import describe, describe_sweep

    query = _query(file).at_rate(rate)
    options = _options(query, costs, trigger_s, inf if pipelined else cores, reorder, divide)
    with readable_errors(NOT_DONE, TooManyPlans):
        if sweep is None:
            report = describe(make_plan(query, options), options)
        else:
            report = describe_sweep(query, _factors(sweep), options)
    if format_ == "json":
        print_document(report)
    elif sweep is None:
        typer.echo(plan_drawing(report) if format_ == "svg" else plan_text(report))
    else:
        typer.echo(sweep_drawing(report) if format_ == "svg" else sweep_text(report))


@continuous.command("run")
def execute(
    file: File,
    tuples: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Tuples in order, one in each line.")
    ],
    *,
    on: Annotated[
        Literal["best", "spark", "database"],
        typer.Option(help="The best plan, or all operators on one engine."),
    ] = "best",
    costs: CostsFile = None,
    trigger_s: Trigger = None,
    cores: Cores = 1.0,
    reorder: Reorder = True,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="Holds the state of the execution: a later call resumes where this one ends."
        ),
    ] = None,
) -> None:
    """Print the results over a log of tuples as NDJSON, and the plan on standard error.

    PORTOLAN_CONTINUOUS_URL is the address of the PostgreSQL database.
    """
    from app.commands.continuous_run import execute_plan
    from mediator.continuous.order import Engine
    from mediator.continuous.parser import parse_tuple
    from mediator.continuous.planning import everything_on, make_plan
    from mediator.stores.port import StoreError
    from spark_jobs.session import SparkUnavailable

    query = _query(file)
    options = _options(query, costs, trigger_s, cores, reorder, divide=True)
    execution_plan = make_plan(query, options)
    if on != "best":
        execution_plan = everything_on(Engine(on), query, options)
    _print_plan(execution_plan, options)
    failures = (StoreError, SparkUnavailable, DataDirectoryBusy, OSError, ValueError)
    with readable_errors(NOT_DONE, *failures):
        log = parse_lines(tuples, partial(parse_tuple, streams=query.streams))
        for line in execute_plan(execution_plan, log, trigger_s or query.slide_s, directory):
            typer.echo(line.decode(), nl=False)


@continuous.command()
def calibrate(
    output: Annotated[Path, typer.Argument(dir_okay=False, help="Written for `--costs`.")],
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller measurements.")] = False,
) -> None:
    """Measure on this machine what operators cost on Spark and in the database.

    PORTOLAN_CONTINUOUS_URL is the address of the PostgreSQL database. It takes some minutes.
    """
    import orjson

    from app.commands.continuous_run import calibrate_costs
    from mediator.stores.port import StoreError
    from spark_jobs.session import SparkUnavailable

    failures = (StoreError, SparkUnavailable, ImportError, OSError, ValueError)
    with readable_errors(NOT_DONE, *failures):
        constants, error = calibrate_costs(errors.print, quick=quick)
        output.write_bytes(orjson.dumps(constants.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
    errors.print(f"Predicted and measured times differ by {error:.0%} in the median.")


def _query(file: Path) -> Query:
    from mediator.continuous.parser import parse_query

    with mistakes_in_files():
        return parse_query(read_document(file, _MAX_BYTES, "continuous query"))


def _options(
    query: Query,
    costs: Path | None,
    trigger_s: float | None,
    cores: float,
    reorder: bool,
    divide: bool,
) -> PlanOptions:
    from mediator.continuous.costs import parse_constants
    from mediator.continuous.order import Capacity
    from mediator.continuous.phase_two import SUBPLAN
    from mediator.continuous.planning import PlanOptions, reference_constants

    slides = (trigger_s or query.slide_s) / query.slide_s
    if abs(slides - round(slides)) > 1e-9 or slides < 1:  # noqa: PLR2004 - of floats
        raise typer.BadParameter("--trigger-s must be a multiple of the query's slide_s.")
    with mistakes_in_files():
        constants = reference_constants()
        if costs is not None:
            constants = parse_constants(read_document(costs, _MAX_BYTES, "file of costs"))
    capacity = Capacity(machine=cores)
    return PlanOptions(constants, trigger_s, capacity, reorder, SUBPLAN if divide else None)


def _factors(text: str) -> list[float]:
    """Parse 1,2,5 or 1:100:20, which is evenly spaced on a logarithmic scale."""
    try:
        if ":" in text:
            first, last, count = text.split(":")
            factors = _logarithmic(float(first), float(last), int(count))
        else:
            factors = [float(factor) for factor in text.split(",")]
    except (ValueError, OverflowError, ZeroDivisionError):
        factors = []
    if not 1 < len(factors) <= _MAX_RATES or not all(0 < factor <= _MAX_RATE for factor in factors):
        raise typer.BadParameter(
            f"--sweep has 2 to {_MAX_RATES} factors above 0, as 0.1:10:20 or 1,2,5."
        )
    return sorted(factors)


def _logarithmic(first: float, last: float, count: int) -> list[float]:
    if not 1 < count <= _MAX_RATES:
        return []
    return [first * (last / first) ** (step / (count - 1)) for step in range(count)]


def _print_plan(execution_plan: Plan, options: PlanOptions) -> None:
    from app.commands.continuous_view import plan_text
    from mediator.continuous.report import describe

    report = plan_text(describe(execution_plan, options))
    errors.print(report)
