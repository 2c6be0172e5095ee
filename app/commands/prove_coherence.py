"""``portolan prove-coherence``: a proof that caches of a running installation are coherent."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands.running import readable_errors

__all__ = ["prove_coherence"]


def prove_coherence(
    url: Annotated[str, typer.Argument(help="The data API, or the cache in front of it.")],
    *,
    admin: Annotated[
        str | None, typer.Option(help="Address of the admin API; by the settings if not given.")
    ] = None,
    cached: Annotated[
        bool, typer.Option("--cached", help="There is a cache in front, and it is purged.")
    ] = False,
) -> None:
    """Write, and see that the filter, the clients and the cache in front know of it.

    A scratch database is made for it with the key in PORTOLAN_KEY, and removed. Ends with 1 if a
    step comes out differently.
    """
    import uvloop

    from app.commands.coherence_proof import Incoherent, Proof
    from app.settings.access import AccessSettings
    from app.settings.main import HttpSettings

    http = HttpSettings()
    where = admin or http.admin_url
    key = AccessSettings().key
    with readable_errors("Not proven", Incoherent):
        uvloop.run(Proof(url.rstrip("/"), where.rstrip("/"), cached, typer.echo, key=key).run())
    typer.echo("Proven.")
