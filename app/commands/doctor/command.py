"""``portolan doctor``: check a machine or an installation, and print remedies."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from app.commands.consoles import console
from app.commands.running import KeyFile, key_in

__all__ = ["doctor"]


def doctor(
    *,
    embedded: Annotated[bool, typer.Option(help="Check only the needs of --embedded.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Check the installation with this admin API instead.")
    ] = None,
    objects: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum objects compared in a database.")
    ] = 10_000,
    key_file: KeyFile = None,
) -> None:
    """Check this machine, and print what was found, what is missing, and how to fix it.

    With --url: check whether a running installation serves, and whether anybody has written to its
    stores past it.
    """
    import uvloop

    from app.commands.doctor.installation import examine, examine_environment, examine_tls
    from app.commands.doctor.service import examine_service
    from app.settings.main import HttpSettings, MediatorSettings

    if url is None:
        findings = [
            *examine(MediatorSettings(), embedded=embedded),
            *examine_tls(HttpSettings()),
            *examine_environment(),
        ]
    else:
        findings = uvloop.run(examine_service(url, objects, key_in(key_file)))
    for finding in findings:
        state = "[green]found[/]  " if finding.found else "[yellow]missing[/]"
        console.print(f"{state} {escape(f'{finding.what}: {finding.detail}')}")
        if finding.remedy:
            console.print(f"          {finding.remedy}", markup=False)
    raise typer.Exit(1 if any(finding.fatal for finding in findings) else 0)
