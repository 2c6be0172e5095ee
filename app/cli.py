"""The command line."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer
import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console

from app.access.settings import AccessSettings
from app.checkup import look_at
from app.commands.archive import backup, restore
from app.commands.catalogue import catalogue
from app.commands.check_trace import check_trace
from app.commands.encode import encode
from app.commands.job import job
from app.commands.key import key
from app.commands.key_option import KeyFile, key_in
from app.commands.prove_coherence import prove_coherence
from app.commands.worker import worker
from app.demo.story import DemoOptions, tell
from app.doctor import examine, examine_tls
from app.interruption import Interrupted
from app.serve import Serving, serving
from app.settings import CacheSettings, HttpSettings, MediatorSettings, MissingSetting
from app.telemetry.log import start_logging
from app.telemetry.settings import TelemetrySettings
from app.upkeep import RunFailed, Upkeep
from benchmarks.measured import Failed, Options
from benchmarks.runner import UnknownBenchmark, available, lines, measure
from mediator.errors import MediatorError
from mediator.stores.embedded.lock import DataDirectoryBusy
from mediator.stores.embedded.port import EmbeddedStartError
from sketch.simulate.command import simulate

__all__ = ["main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Declare what your data needs; the right database serves it.",
)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

CANNOT_RUN = (
    MissingSetting,
    DataDirectoryBusy,
    EmbeddedStartError,
    MediatorError,
    OSError,
    Failed,
    UnknownBenchmark,
    RunFailed,
)
"""What ends a command with a sentence instead of a traceback."""

AdminUrl = Annotated[
    str | None, typer.Option(help="Address of the admin API; by the settings if not given.")
]

S = TypeVar("S", HttpSettings, MediatorSettings)


def main() -> None:
    """Run the command line."""
    try:
        start_logging(TelemetrySettings().log_format)
        app()
    except (ValidationError, SettingsError) as error:
        errors.print(f"Portolan cannot run: {error}", markup=False)
        raise SystemExit(1) from None


@app.command()
def serve(
    *,
    embedded: Annotated[bool, typer.Option(help="Run on embedded stores of our own.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where embedded stores keep their data.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the data API.")
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the admin API.")
    ] = None,
    durability: Annotated[
        str | None, typer.Option(help="Durability of embedded stores: second or full.")
    ] = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Without --embedded the service runs on the databases that the settings name; `portolan doctor`
    says what is found. Every setting is an environment variable, listed in docs/settings.md.
    """
    http = _overridden(HttpSettings(), port=port, admin_port=admin_port)
    given = {"embedded": embedded or None, "data_dir": data_dir, "durability": durability}
    settings = _overridden(MediatorSettings(), **given)
    _run(_serve(http, settings))


@app.command()
def doctor(
    *,
    embedded: Annotated[bool, typer.Option(help="Look only at what --embedded needs.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Look at the installation with this admin API instead.")
    ] = None,
    objects: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Objects of a database compared at most.")
    ] = 10_000,
    key_file: KeyFile = None,
) -> None:
    """Say what is found on this machine, what is missing, and what to do about it.

    With --url: whether an installation that is running serves, and whether anybody has written to
    its stores past it.
    """
    if url is None:
        findings = examine(MediatorSettings(), embedded=embedded) + examine_tls(HttpSettings())
    else:
        findings = uvloop.run(look_at(url, objects, key_in(key_file)))
    for finding in findings:
        mark = "[green]found[/]  " if finding.found else "[yellow]missing[/]"
        console.print(f"{mark} {finding.what}: {finding.detail}")
        if finding.remedy:
            console.print(f"          {finding.remedy}")
    raise typer.Exit(1 if any(finding.fatal for finding in findings) else 0)


@app.command()
def demo(
    *,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where embedded stores keep their data.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the data API.")
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the admin API.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=3600, help="For how long the newspaper is read.")
    ] = 15.0,
    once: Annotated[bool, typer.Option(help="End the service with the demo.")] = False,
) -> None:
    """Show it: start the embedded service, place the newspaper, load it, measure it, explain it.

    The service is left up until Ctrl-C. A second demo on the same data directory goes on there.
    """
    http = _overridden(HttpSettings(), port=port, admin_port=admin_port)
    settings = _overridden(MediatorSettings(), embedded=True, data_dir=data_dir)
    _run(tell(http, settings, DemoOptions(seconds, once), Console()))


@app.command()
def verify(
    database: Annotated[str, typer.Argument(help="A database that has a primary.")],
    *,
    repair: Annotated[bool, typer.Option(help="Make good what is wrong.")] = False,
    url: AdminUrl = None,
) -> None:
    """Compare the primary of a database with the systems that it is copied from.

    Ends with 1 if something is wrong and was not repaired. The service has to be running.
    """
    _run(_look_after(_upkeep(url).verify(database, repair=repair)))


@app.command("rebuild-primary")
def rebuild_primary(
    database: Annotated[str, typer.Argument(help="A database that has a primary.")],
    *,
    url: AdminUrl = None,
) -> None:
    """Copy a whole database into its primary anew, while it is in use, and compare them.

    Ends with 1 if something is wrong afterwards. The service has to be running.
    """
    _run(_look_after(_upkeep(url).rebuild(database)))


app.command()(backup)
app.command()(restore)
app.command()(encode)
app.command("check-trace")(check_trace)
app.command("prove-coherence")(prove_coherence)
app.command()(simulate)
app.command()(worker)
app.add_typer(job, name="job")
app.add_typer(key, name="key")
app.add_typer(catalogue, name="catalogue")


def _upkeep(url: str | None) -> Upkeep:
    http = HttpSettings()
    key = AccessSettings().key
    return Upkeep(url or http.admin_url, console, key)


async def _look_after(run: Coroutine[Any, Any, bool]) -> None:
    if not await run:
        raise typer.Exit(1)


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which benchmark.")] = None,
    *,
    quick: Annotated[bool, typer.Option(help="End within a minute.")] = False,
    full: Annotated[bool, typer.Option(help="Take as long as the strongest claim needs.")] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.5, max=1440, help="How long `soak` runs.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Where random numbers begin.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the report here as well.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say which there are.")] = False,
) -> None:
    """Measure a claim of the README; the last line is the report as one JSON object."""
    if list_ or name is None:
        for each, about in available().items():
            typer.echo(f"{each:10} {about}")
        raise typer.Exit(0 if list_ else 2)
    _run(_bench(name, Options(quick, seed, typer.echo, full, minutes), json))


async def _bench(name: str, options: Options, file: Path | None) -> None:
    report = await measure(name, options)
    text = orjson.dumps(report).decode()
    if file is not None:
        await asyncio.to_thread(file.write_text, f"{text}\n")
    for line in [*lines(report), text]:
        typer.echo(line)


async def _serve(http: HttpSettings, settings: MediatorSettings) -> None:
    async with serving(http, settings, CacheSettings(), AccessSettings()) as service:
        announce(service)
        await service.ended.wait()
        errors.print("Stopping: requests under way are finished first.")


def announce(service: Serving) -> None:
    """Print where the service listens, and what it runs without."""
    for missing in service.missing:
        errors.print(f"Without {missing.kind}: {missing.reason} {missing.remedy}")
    console.print(f"Data API   {service.addresses.data}/v1/   ({service.addresses.data}/docs)")
    admin = service.addresses.admin
    console.print(f"Admin API  {admin}/admin/v1/   ({admin}/docs)")


def _run(task: Coroutine[Any, Any, None]) -> None:
    try:
        uvloop.run(task)
    except Interrupted:
        errors.print("Interrupted.")
        raise typer.Exit(130) from None
    except CANNOT_RUN as error:
        errors.print(f"Portolan cannot run: {error}")
        raise typer.Exit(1) from None


def _overridden(settings: S, **given: Any) -> S:
    """Let options given on the command line win over the environment."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return type(settings).model_validate({**settings.model_dump(), **chosen})
