"""``portolan key``: keys made, listed and revoked in the catalogue itself.

The first key cannot be made over HTTP, which needs one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.consoles import json_text
from app.commands.running import DataDir, overridden, run
from mediator.access.model import OPERATOR
from mediator.base.clock import SystemClock

if TYPE_CHECKING:
    from mediator.control.tenancy import Tenancy

__all__ = ["key"]

key = typer.Typer(no_args_is_help=True, help="API keys: docs/security.md.")

_DAY_S = 86_400

OfTenant = Annotated[str, typer.Option(help="Whose key it is.")]
Embedded = Annotated[bool, typer.Option(help="The catalogue of the embedded stores, not running.")]


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

    async def make(tenancy: Tenancy) -> None:
        made = await tenancy.create_key(tenant, subject, grant, label=label, expires=expires)
        typer.echo(json_text(made))

    _run(make, embedded=embedded, data_dir=data_dir)


@key.command("list")
def list_(
    *, tenant: OfTenant = OPERATOR, embedded: Embedded = False, data_dir: DataDir = None
) -> None:
    """List the keys of a tenant, without their secrets."""

    async def print_keys(tenancy: Tenancy) -> None:
        for each in await tenancy.keys(tenant):
            typer.echo(json_text(each))

    _run(print_keys, embedded=embedded, data_dir=data_dir)


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
    do: Callable[[Tenancy], Awaitable[None]], *, embedded: bool, data_dir: Path | None
) -> None:
    from app.service.serving import on_stores
    from app.settings.main import MediatorSettings
    from mediator.catalogue.connection import Catalogue
    from mediator.catalogue.tenants import CatalogueTenants
    from mediator.control.tenancy import Tenancy

    settings = overridden(MediatorSettings(), embedded=embedded or None, data_dir=data_dir)

    async def with_tenancy() -> None:
        async with on_stores(settings) as (ready, _):
            catalogue = Catalogue(ready.required_catalogue_url)
            try:
                await catalogue.open()
                await do(Tenancy(CatalogueTenants(catalogue), SystemClock()))
            finally:
                await catalogue.close()

    run(with_tenancy())
