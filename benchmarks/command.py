"""``portolan bench``: measures the claims of the README."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.running import run

if TYPE_CHECKING:
    from benchmarks.harness.report import Options

__all__ = ["bench"]


def bench(
    name: Annotated[str | None, typer.Argument(help="Name of the benchmark.")] = None,
    *,
    quick: Annotated[bool, typer.Option(help="End within a minute.")] = False,
    full: Annotated[bool, typer.Option(help="Take as long as the strongest claim needs.")] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.5, max=1440, help="How long `soak` runs.")
    ] = None,
    objects: Annotated[
        int | None, typer.Option(min=1, help="Number of objects of `count` and `evolve`.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the report to this file.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
) -> None:
    """Measure a claim of the README; the last line is the report as one JSON object."""
    from app.commands.demo.failed import Failed
    from benchmarks.harness.report import Options
    from benchmarks.harness.runner import UnknownBenchmark, available

    if list_ or name is None:
        for benchmark, about in available().items():
            typer.echo(f"{benchmark:10} {about}")
        raise typer.Exit(0 if list_ else 2)
    run(
        _bench(name, Options(quick, seed, typer.echo, full, minutes, objects), json),
        Failed,
        UnknownBenchmark,
    )


async def _bench(name: str, options: Options, file: Path | None) -> None:
    import orjson

    from benchmarks.harness.runner import lines, measure

    report = await measure(name, options)
    text = orjson.dumps(report).decode()
    if file is not None:
        await asyncio.to_thread(file.write_text, f"{text}\n")
    for line in [*lines(report), text]:
        typer.echo(line)
