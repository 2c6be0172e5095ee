"""``portolan key``: create, list and revoke keys directly in the catalogue.

The first key cannot be created over HTTP, which requires a key.
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

TenantOption = Annotated[str, typer.Option(help="The tenant of the key.")]
Embedded = Annotated[
    bool, typer.Option(help="Use the catalogue of embedded stores, which must not run.")
]


@key.command("create")
def create(
    *,
    subject: Annotated[str, typer.Option(help="The subject that it authenticates.")],
    grant: Annotated[
        list[str], typer.Option(help="scope, scope:database or scope:database/class.")
    ],
    tenant: TenantOption = OPERATOR,
    label: Annotated[str, typer.Option(help="The purpose of the key.")] = "",
    days: Annotated[
        float | None, typer.Option(min=0.001, max=36_500, help="Days until it expires.")
    ] = None,
    embedded: Embedded = False,
    data_dir: DataDir = None,
) -> None:
    """Create a key and print it, only this once: the catalogue stores only a hash of its secret."""
    expires = None if days is None else SystemClock().now() + days * _DAY_S

    async def make(tenancy: Tenancy) -> None:
        document = await tenancy.create_key(tenant, subject, grant, label=label, expires=expires)
        typer.echo(json_text(document))

    _run(make, embedded=embedded, data_dir=data_dir)


@key.command("list")
def list_(
    *, tenant: TenantOption = OPERATOR, embedded: Embedded = False, data_dir: DataDir = None
) -> None:
    """List the keys of a tenant, without their secrets."""

    async def print_keys(tenancy: Tenancy) -> None:
        for document in await tenancy.keys(tenant):
            typer.echo(json_text(document))

    _run(print_keys, embedded=embedded, data_dir=data_dir)


@key.command("revoke")
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
    *,
    tenant: TenantOption = OPERATOR,
    embedded: Embedded = False,
    data_dir: DataDir = None,
) -> None:
    """Revoke a key: within about a second every replica refuses it."""
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
