"""``portolan demo``: the newspaper, placed, read and explained."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from app.commands.running import AdminPort, DataDir, Port, overridden, run

__all__ = ["demo"]


def demo(
    *,
    data_dir: DataDir = None,
    port: Port = None,
    admin_port: AdminPort = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds of reading the newspaper.")
    ] = 15.0,
    once: Annotated[bool, typer.Option(help="End the service with the demo.")] = False,
) -> None:
    """Start the embedded service; place, load, measure and explain the newspaper.

    The service runs until Ctrl-C. A second demo on the same data directory continues there.
    """
    from app.commands.demo.failed import Failed
    from app.commands.demo.story import DemoOptions, run_demo
    from app.settings.main import HttpSettings, MediatorSettings

    http = overridden(HttpSettings(), port=port, admin_port=admin_port)
    settings = overridden(MediatorSettings(), embedded=True, data_dir=data_dir)
    run(run_demo(http, settings, DemoOptions(seconds, once), Console()), Failed)
