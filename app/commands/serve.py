"""``portolan serve``: run the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.consoles import console, errors
from app.commands.running import AdminPort, DataDir, Port, overridden, run

if TYPE_CHECKING:
    from app.service.serving import Serving
    from app.settings.main import HttpSettings, MediatorSettings

__all__ = ["serve"]


def serve(
    *,
    embedded: Annotated[bool, typer.Option(help="Run on embedded stores.")] = False,
    data_dir: DataDir = None,
    port: Port = None,
    admin_port: AdminPort = None,
    durability: Annotated[
        str | None, typer.Option(help="Durability of embedded stores: second or full.")
    ] = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Without --embedded the service runs on the databases that the settings name; `portolan doctor`
    checks them. Every setting is an environment variable, listed in docs/settings.md.
    """
    from app.settings.main import HttpSettings, MediatorSettings

    http = overridden(HttpSettings(), port=port, admin_port=admin_port)
    options = {"embedded": embedded or None, "data_dir": data_dir, "durability": durability}
    settings = overridden(MediatorSettings(), **options)
    run(_serve(http, settings))


async def _serve(http: HttpSettings, settings: MediatorSettings) -> None:
    from app.service.serving import serving
    from app.settings.access import AccessSettings
    from app.settings.main import CacheSettings

    async with serving(http, settings, CacheSettings(), AccessSettings()) as service:
        _announce(service)
        await service.ended.wait()
        errors.print("Stopping: requests under way are finished first.")


def _announce(service: Serving) -> None:
    for server in service.missing:
        warning = f"Without {server.kind}: {server.reason} {server.remedy}"
        errors.print(warning)
    console.print(f"Data API   {service.addresses.data}/v1/   ({service.addresses.data}/docs)")
    admin = service.addresses.admin
    console.print(f"Admin API  {admin}/admin/v1/   ({admin}/docs)")
