"""`python -m mediator.stores.conformance KIND --url URL`: run the suite and print a table."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mediator.stores.conformance.check import describe
from mediator.stores.conformance.runner import CheckStatus, Report, run
from mediator.stores.kinds import make_store
from mediator.stores.port import Store, SystemConfig

__all__ = ["app"]

app = typer.Typer(add_completion=False)

_COLOURS = {
    CheckStatus.PASSED: "green",
    CheckStatus.FAILED: "red",
    CheckStatus.NOT_OFFERED: "dim",
    CheckStatus.UNKNOWN: "yellow",
}


def _store(kind: str, url: str) -> Store:
    """Construct a store of a known kind, or of a ``module:Class`` of another package."""
    config = SystemConfig("conformance", kind, url)
    module, _, name = kind.partition(":")
    if not name:
        try:
            return make_store(config)
        except ValueError as error:
            raise typer.BadParameter(f"{error}, or module:Class") from None
    store: Store = getattr(import_module(module), name)(config)
    return store


async def _report(store: Store, only: str | None) -> Report:
    await store.open()
    try:
        return await run(store, only=only)
    finally:
        await store.close()


def _table(report: Report) -> Table:
    table = Table("check", "proves", "status", "ms", "detail")
    for finding in report.findings:
        table.add_row(
            finding.check.name,
            describe(finding.check.proves),
            f"[{_COLOURS[finding.status]}]{finding.status}[/]",
            f"{finding.seconds * 1000:.0f}",
            finding.detail.replace("[", "\\["),
        )
    return table


@app.command()
def main(
    kind: Annotated[str, typer.Argument(help="A kind of store, or module:Class.")],
    url: Annotated[str, typer.Option(help="connection URL of the server")],
    only: Annotated[str | None, typer.Option(help="shell pattern of check names")] = None,
) -> None:
    """Run the conformance suite against a server; exit with 1 if the store does not conform."""
    report = asyncio.run(_report(_store(kind, url), only))
    console = Console()
    console.print(_table(report))
    console.print(", ".join(f"{len(report.having(status))} {status}" for status in CheckStatus))
    raise typer.Exit(0 if report.conforms else 1)


if __name__ == "__main__":
    app()
