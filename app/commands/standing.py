"""``portolan standing``: plan standing queries, and execute them over a log of tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.commands.consoles import errors, json_text, print_document
from app.commands.running import (
    NOT_DONE,
    mistakes_in_files,
    parse_lines,
    read_document,
    readable_errors,
)

if TYPE_CHECKING:
    from mediator.standing.model import Stream, Workload
    from mediator.standing.planning import Mode, Plan
    from mediator.standing.runtime import Runtime
    from mediator.standing.state import StreamTuple

__all__ = ["plan_queries", "read_tuples", "standing"]

standing = typer.Typer(
    no_args_is_help=True,
    help="Joins of streams that are answered tuple by tuple: docs/standing-queries.md.",
)

_MAX_BYTES: Final = 2**22
_BATCH: Final = 1_000


File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="Streams and queries: JSON or YAML.")
]
ModeOption = Annotated[
    Literal["individual", "greedy", "shared"],
    typer.Option("--mode", help="Plan each query alone, all greedily, or all optimally."),
]
Intermediates = Annotated[
    bool, typer.Option(help="Whether results of smaller joins may be materialised.")
]
Replicas = Annotated[
    bool,
    typer.Option("--replicas", help="Let a store have replicas partitioned by other attributes."),
]
Limit = Annotated[
    float, typer.Option("--limit-s", min=0.001, max=3600, help="Seconds for the solver.")
]


@standing.command()
def plan(
    file: File,
    *,
    mode: ModeOption = "shared",
    format_: Annotated[
        Literal["text", "json", "svg"], typer.Option("--format", help="Text, JSON, or a drawing.")
    ] = "text",
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
) -> None:
    """Print which tuples are stored, where they are sent, and the predicted rates."""
    from mediator.standing.drawing import drawing
    from mediator.standing.report import describe

    _, plans = plan_queries(file, mode, intermediates, replicas, limit_s)
    report = describe(plans, mode)
    if format_ == "json":
        print_document(report)
    else:
        typer.echo(drawing(report) if format_ == "svg" else _plan_text(report))


@standing.command("run")
def execute(
    file: File,
    tuples: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Tuples in order, one in each line.")
    ],
    *,
    mode: ModeOption = "shared",
    intermediates: Intermediates = True,
    replicas: Replicas = False,
    limit_s: Limit = 10.0,
    lateness_s: Annotated[
        float, typer.Option("--lateness-s", min=0, help="Seconds that tuples may be late.")
    ] = 0.0,
) -> None:
    """Print the results over a log of tuples as NDJSON, and rates on standard error."""
    from mediator.base.errors import Invalid
    from mediator.standing.report import describe_measured

    workload, plans = plan_queries(file, mode, intermediates, replicas, limit_s)
    runtimes = [(plan_, _runtime(plan_, lateness_s)) for plan_ in plans]
    first_s, last_s = float("inf"), float("-inf")
    with readable_errors(NOT_DONE, Invalid, OSError, ValueError):
        for batch in read_tuples(tuples, workload.streams):
            first_s = min(first_s, *(tuple_.time_s for tuple_ in batch))
            last_s = max(last_s, *(tuple_.time_s for tuple_ in batch))
            for _, runtime in runtimes:
                for result in runtime.feed(batch):
                    typer.echo(json_text(result.to_json()))
    # A single instant has no rate: count it as one second.
    duration_s = last_s - first_s if last_s > first_s else 1.0
    report = [describe_measured(plan_, runtime, duration_s) for plan_, runtime in runtimes]
    errors.print(_measured_text(report))


def plan_queries(
    file: Path, mode: Mode, intermediates: bool, replicas: bool, limit_s: float
) -> tuple[Workload, list[Plan]]:
    from mediator.base.integer_program import SolverMissing
    from mediator.standing.parser import parse_workload
    from mediator.standing.planning import PlanOptions, make_plans

    options = PlanOptions(intermediates, replicas, limit_s)
    with mistakes_in_files(SolverMissing):
        workload = parse_workload(read_document(file, _MAX_BYTES, "file of standing queries"))
        return workload, make_plans(workload, mode, options)


def _runtime(plan: Plan, lateness_s: float) -> Runtime:
    from mediator.standing.runtime import Runtime

    retention_s = max(query.window_s for query in plan.workload.joins)
    runtime = Runtime(plan.workload.streams, plan.workload.parallelism, retention_s, lateness_s)
    runtime.activate(plan)
    return runtime


def read_tuples(path: Path, streams: Mapping[str, Stream]) -> Iterator[list[StreamTuple]]:
    """Read tuples in batches.

    Raises:
        ValueError: A line is not a tuple; names its number.
    """
    from mediator.standing.parser import parse_tuple

    parsed_tuples = parse_lines(path, partial(parse_tuple, streams=streams))
    return iter(lambda: list(islice(parsed_tuples, _BATCH)), [])


def _plan_text(report: Mapping[str, Any]) -> str:
    """Format a report of plans as lines."""
    optimality = "greedy" if report["is_greedy"] else f"gap {report['gap']:.2%}"
    summary = (
        f"{report['mode']}: {report['cost']:,.6g} tuples/s sent ({optimality};"
        f" {report['variables']:,} variables, {report['solved_s']:.2f} s),"
        f" {report['stored_tuples']:,.6g} tuples stored"
    )
    lines = [summary]
    for plan in report["plans"]:
        lines += ["", ", ".join(plan["queries"])]
        lines += [_hop_line(hop) for hop in plan["hops"]]
        lines += [
            f"  {store['store']:24} {store['tuples']:14,.6g} tuples      for"
            f" {', '.join(store['queries']) or 'queries to come'}"
            for store in plan["stores"]
        ]
    return "\n".join(lines)


def _measured_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """Format measured rates of runs beside the predicted ones."""
    lines = []
    for run in runs:
        lines.append(
            f"{', '.join(run['queries'])}: {run['measured']:,.6g} tuples/s sent,"
            f" {run['predicted']:,.6g} predicted; {run['late']:,} late"
        )
        lines += [
            f"  {hop['order']:24} {hop['measured']:14,.6g} tuples/s,"
            f" {hop['predicted']:,.6g} predicted"
            for hop in run["hops"]
        ]
    return "\n".join(lines)


def _hop_line(hop: Mapping[str, Any]) -> str:
    shared = f"    for {', '.join(hop['joins'])}" if len(hop["joins"]) > 1 else ""
    return f"  {hop['order']:24} {hop['cost']:14,.6g} tuples/s{shared}"
