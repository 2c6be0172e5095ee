"""``portolan catalogue``: the tables of the catalogue, and their revisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.running import run

if TYPE_CHECKING:
    from mediator.catalogue.connection import Catalogue

__all__ = ["catalogue"]

catalogue = typer.Typer(
    no_args_is_help=True,
    help="The tables of the catalogue: docs/operations.md, Upgrading. PORTOLAN_CATALOGUE_URL"
    " is its address.",
)

Sql = Annotated[bool, typer.Option("--sql", help="Only print the statements.")]


@catalogue.command()
def upgrade(*, sql: Sql = False) -> None:
    """Migrate the tables to the newest revision, as `portolan serve` does when it starts."""
    _run(partial(_revise, to=None, only_sql=sql))


@catalogue.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="The revision to go back to.")],
    *,
    sql: Sql = False,
) -> None:
    """Migrate the tables back to an older revision. Data that later ones added is lost."""
    _run(partial(_revise, to=revision, only_sql=sql))


@catalogue.command()
def current() -> None:
    """Print the revision of the tables, and whether this version of Portolan can run on it."""
    _run(_current)


@catalogue.command()
def history() -> None:
    """List the revisions that this version of Portolan knows, oldest first."""
    _run(_history)


async def _revise(connection: Catalogue, *, to: str | None, only_sql: bool) -> None:
    revisions = connection.revisions
    if only_sql:
        revision = await connection.run_sync(revisions.current)
        typer.echo(revisions.sql(revision, to), nl=False)
        return
    await connection.migrate(
        revisions.upgrade if to is None else partial(revisions.downgrade, to=to)
    )
    await _current(connection)


async def _current(connection: Catalogue) -> None:
    revision = await connection.run_sync(connection.revisions.current)
    compatibility = await connection.run_sync(connection.revisions.compatibility)
    typer.echo(f"{revision or 'none'}  {compatibility.name.lower()}")


async def _history(connection: Catalogue) -> None:
    for revision in connection.revisions.known():
        kind = "additive" if revision.additive else "        "
        typer.echo(f"{revision.id}  {kind}  {revision.about}")


def _run(do: Callable[[Catalogue], Awaitable[None]]) -> None:
    from app.settings.main import MediatorSettings
    from mediator.catalogue.connection import Catalogue

    async def on_catalogue() -> None:
        connection = Catalogue(MediatorSettings().required_catalogue_url)
        try:
            await do(connection)
        finally:
            await connection.close()

    run(on_catalogue())
