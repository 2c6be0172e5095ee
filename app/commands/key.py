"""``portolan key``: keys made, listed and revoked in the catalogue itself.

The first key cannot be made over HTTP, because HTTP asks for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mediator.access.model import OPERATOR
from mediator.base.clock import SystemClock
from mediator.base.errors import MediatorError
from mediator.embedded.lock import DataDirectoryBusy
from mediator.embedded.port import EmbeddedStartError

if TYPE_CHECKING:
    from app.settings.main import MediatorSettings
    from mediator.access.tenancy import Tenancy

__all__ = ["key"]

key = typer.Typer(no_args_is_help=True, help="API keys: docs/security.md.")

_DAY_S = 86_400

OfTenant = Annotated[str, typer.Option(help="Whose key it is.")]
Embedded = Annotated[bool, typer.Option(help="The catalogue of the embedded stores, not running.")]
DataDir = Annotated[Path | None, typer.Option(help="Where embedded stores keep their data.")]


@key.command("create")
def create(
    *,
    subject: Annotated[str, typer.Option(help="Whom it stands for.")],
    grant: Annotated[
        list[str], typer.Option(help="scope, scope:database or scope:database/class.")
    ],
    tenant: OfTenant = OPERATOR,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[
        float | None, typer.Option(min=0.001, max=36_500, help="After how long it ends.")
    ] = None,
    embedded: Embedded = False,
    data_dir: DataDir = None,
) -> None:
    """Make a key and print it, which happens only now: of its secret nothing but a hash is kept."""
    expires = None if days is None else SystemClock().now() + days * _DAY_S

    async def make(tenancy: Tenancy) -> Any:
        return await tenancy.create_key(tenant, subject, grant, label=label, expires=expires)

    _print(_run(make, embedded=embedded, data_dir=data_dir))


@key.command("list")
def list_(
    *, tenant: OfTenant = OPERATOR, embedded: Embedded = False, data_dir: DataDir = None
) -> None:
    """List the keys of a tenant, without their secrets."""
    for each in _run(lambda t: t.keys(tenant), embedded=embedded, data_dir=data_dir):
        _print(each)


@key.command("revoke")
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
    *,
    tenant: OfTenant = OPERATOR,
    embedded: Embedded = False,
    data_dir: DataDir = None,
) -> None:
    """Revoke a key: within about a second nobody takes it any more."""
    _run(lambda t: t.revoke(tenant, id_), embedded=embedded, data_dir=data_dir)


def _run(
    task: Callable[[Tenancy], Awaitable[Any]], *, embedded: bool, data_dir: Path | None
) -> Any:
    from app.settings.main import MediatorSettings, MissingSetting

    settings = MediatorSettings()
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    try:
        return asyncio.run(_with_tenancy(task, settings, embedded=embedded or settings.embedded))
    except (MissingSetting, MediatorError, DataDirectoryBusy, EmbeddedStartError) as error:
        locations = [f" {p.pointer}: {p.detail}." for p in getattr(error, "locations", ())]
        typer.echo(f"That cannot be done: {error}{''.join(locations)}", err=True)
        raise typer.Exit(1) from None


async def _with_tenancy(
    task: Callable[[Tenancy], Awaitable[Any]], settings: MediatorSettings, *, embedded: bool
) -> Any:
    from mediator.access.tenancy import Tenancy
    from mediator.catalogue.connection import Catalogue
    from mediator.catalogue.tenants import CatalogueTenants

    async with _catalogue_url(settings, embedded=embedded) as url:
        catalogue = Catalogue(url)
        try:
            await catalogue.open()
            return await task(Tenancy(CatalogueTenants(catalogue), SystemClock()))
        finally:
            await catalogue.close()


@asynccontextmanager
async def _catalogue_url(settings: MediatorSettings, *, embedded: bool) -> AsyncIterator[str]:
    from app.settings.main import MissingSetting
    from mediator.embedded.fleet import EmbeddedFleet

    if not embedded:
        if settings.catalogue_url is None:
            raise MissingSetting("There is no catalogue: set PORTOLAN_CATALOGUE_URL.")
        yield settings.catalogue_url.get_secret_value()
        return
    fleet = EmbeddedFleet(settings.data_dir, settings.durability)
    state = await asyncio.to_thread(fleet.start)
    try:
        yield state.endpoints["postgresql"].url
    finally:
        await asyncio.to_thread(fleet.stop)


def _print(document: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(document).decode())
