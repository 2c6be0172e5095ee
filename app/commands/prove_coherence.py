"""``portolan prove-coherence``: a proof that caches of a running installation are coherent."""

from __future__ import annotations

from typing import Annotated

import typer

from app.commands.consoles import errors

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
    try:
        proof = Proof(
            url.rstrip("/"), where.rstrip("/"), cached, typer.echo, key=AccessSettings().key
        )
        uvloop.run(proof.run())
    except Incoherent as error:
        errors.print(f"Not proven. {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    typer.echo("Proven.")
