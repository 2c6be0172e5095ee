"""``portolan prove-coherence``: prove that the caches of a running installation are coherent."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands.running import readable_errors

__all__ = ["prove_coherence"]


def prove_coherence(
    url: Annotated[str, typer.Argument(help="The data API, or the cache in front of it.")],
    *,
    admin: Annotated[
        str | None, typer.Option(help="Address of the admin API; by default from the settings.")
    ] = None,
    cached: Annotated[
        bool, typer.Option("--cached", help="A cache is in front, and Portolan purges it.")
    ] = False,
) -> None:
    """Write, and check that the filter, the clients and the cache in front reflect it.

    It creates a scratch database with the key in PORTOLAN_KEY, and removes it. Exits with 1 if a
    step fails.
    """
    import uvloop

    from app.commands.coherence_proof import Incoherent, Proof
    from app.settings.access import AccessSettings
    from app.settings.main import HttpSettings

    http = HttpSettings()
    admin_url = admin or http.admin_url
    key = AccessSettings().key
    with readable_errors("Not proven", Incoherent):
        uvloop.run(Proof(url.rstrip("/"), admin_url.rstrip("/"), cached, typer.echo, key=key).run())
    typer.echo("Proven.")
