"""``portolan simulate``: compares TTL estimators by a simulation in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sketch.ttl.cate import Ratio
from sketch.ttl.port import Weights

if TYPE_CHECKING:  # help must not wait for numpy
    from sketch.instruments.simulate.comparison import Question, SimulationReport
    from sketch.instruments.simulate.workload import YcsbWorkload
    from sketch.instruments.simulate.world import World

__all__ = ["simulate"]

_errors = Console(stderr=True, highlight=False)
_COUNT_COLUMNS: Final = ("invalidations", "stale", "stalest", "ops/s")


_Workload = Annotated[
    Literal["a", "b", "c", "d", "e", "f"],
    typer.Option(help="Core workload of YCSB.", case_sensitive=False),
]
_Operations = Annotated[int, typer.Option(min=1, help="Operations to simulate.")]
_WarmUp = Annotated[int, typer.Option(min=0, help="Earlier operations that are not counted.")]
_Records = Annotated[int, typer.Option(min=1, help="Initial records.")]
_Rate = Annotated[float, typer.Option(min=1e-3, help="Operations in a virtual second.")]
_Clients = Annotated[int, typer.Option(min=1, help="Clients that share them.")]
_Caches = Annotated[str, typer.Option(help="Caches on the way: any of client, proxy, cdn.")]
_Bound = Annotated[float, typer.Option(min=0.01, help="Δ in seconds.")]
_Margin = Annotated[float, typer.Option(min=0, help="M in seconds.")]
_MaxTtl = Annotated[float, typer.Option(min=0.1, help="Maximum TTL in seconds.")]
_Origin = Annotated[
    str, typer.Option(help="One way to the origin: constant(ms), normal(ms, ms), …")
]
_EstimatorName = Annotated[
    Literal["all", "static", "cate", "learner", "oracle"],
    typer.Option(help="Estimator; all compares them."),
]
_Ratio = Annotated[Ratio, typer.Option(help="How CATE's quantile follows from its rates.")]
_Starts = Annotated[int, typer.Option(min=1, help="Starting points of hill climbing.")]
_Costs = Annotated[
    str, typer.Option(help="Cost of invalidation, stale read, miss, false positives.")
]
_Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
_Plots = Annotated[Path | None, typer.Option(help="Folder for plots (SVG).")]
_Json = Annotated[Path | None, typer.Option(help="File for all figures.")]
_Page = Annotated[Path | None, typer.Option(help="File for a page (HTML).")]


def simulate(
    *,
    workload: _Workload = "a",
    operations: _Operations = 20_000,
    warm_up: _WarmUp = 0,
    records: _Records = 1_000,
    rate: _Rate = 200.0,
    clients: _Clients = 10,
    caches: _Caches = "client,cdn",
    bound: _Bound = 1.0,
    margin: _Margin = 0.0,
    max_ttl: _MaxTtl = 600.0,
    origin: _Origin = "constant(86.54)",
    estimator: _EstimatorName = "all",
    ratio: _Ratio = "linear",
    starts: _Starts = 3,
    weights: _Costs = "0.2,1,1,1",
    seed: _Seed = 1,
    out: _Plots = None,
    json: _Json = None,
    report: _Page = None,
) -> None:
    """Simulate caches over a workload, and compare how lifetimes are chosen.

    Static lifetimes are swept, and CATE's settings are found by hill climbing, so that each shows
    the best it can do; the oracle knows the next write. docs/ttl.md explains the report.
    """
    from sketch.instruments.simulate.comparison import ESTIMATORS, Question
    from sketch.instruments.simulate.page import PlotsMissing
    from sketch.instruments.simulate.workload import WORKLOADS, YcsbWorkload

    shares = WORKLOADS[workload]
    work = YcsbWorkload(shares, operations, records, rate, clients, warm_up=warm_up)
    estimators = tuple(name for name in ESTIMATORS if estimator in (name, "all"))
    try:
        world = _world(work, caches, origin, (bound, margin, max_ttl), seed)
        question = Question(_weights(weights), ratio, starts, estimators)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    comparison = _compare(world, question)
    _errors.print(_table(comparison))
    try:
        _write(comparison, out, json, report)
    except PlotsMissing as error:
        _errors.print(str(error))
        raise typer.Exit(1) from None


def _world(
    work: YcsbWorkload, caches: str, origin: str, limits: tuple[float, float, float], seed: int
) -> World:
    from sketch.instruments.simulate.latency import parse
    from sketch.instruments.simulate.world import World, layers_of

    has_client, layers = layers_of(caches)
    bound, margin, max_ttl = limits
    return World(
        work,
        client_caches=has_client,
        layers=layers,
        origin_one_way=parse(origin),
        bound_s=bound,
        margin_s=margin,
        max_ttl_s=max_ttl,
        seed=seed,
    )


def _weights(text: str) -> Weights:
    numbers = [float(number) for number in text.split(",")]
    if len(numbers) != len(Weights.__slots__):
        raise ValueError("there are four weights, separated by commas")
    return Weights(*numbers)


def _compare(world: World, question: Question) -> SimulationReport:
    from sketch.instruments.simulate.comparison import compare
    from sketch.instruments.simulate.engine import Prepared

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=_errors, transient=True) as progress:
        task = progress.add_task("Drawing accesses", total=None)
        return compare(
            Prepared.of(world), question, lambda step: progress.update(task, description=step)
        )


def _table(comparison: SimulationReport) -> Table:
    table = Table("estimator", "cost", "hits", "origin", *_COUNT_COLUMNS)
    for entry in comparison.entries:
        tally = entry.run.tally
        table.add_row(
            entry.name,
            f"{entry.cost:.4f}",
            f"{tally.hit_ratio:.1%}",
            f"{tally.origin_reads:,}",
            f"{tally.invalidations:,}",
            f"{tally.stale:,}",
            f"{tally.stalest_s:.2f} s",
            f"{entry.run.operations_per_s:,.0f}",
        )
    return table


def _write(
    comparison: SimulationReport, out: Path | None, json: Path | None, report: Path | None
) -> None:
    import orjson

    from sketch.instruments.simulate.page import (
        cost_plot,
        latency_plot,
        page,
        reads_plot,
        sweep_plot,
    )

    if json is not None:
        json.write_bytes(orjson.dumps(comparison.to_json(), option=orjson.OPT_INDENT_2))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "cost.svg").write_text(cost_plot(comparison))
        (out / "sweep.svg").write_text(sweep_plot(comparison))
        (out / "reads.svg").write_text(reads_plot(comparison))
        (out / "latency.svg").write_text(latency_plot(comparison))
    if report is not None:
        report.write_text(page(comparison))
