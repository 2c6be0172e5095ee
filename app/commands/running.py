"""What commands have in common: settings that options override, and endings in a sentence."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from app.commands.consoles import errors
from app.interruption import Interrupted, NotClosed
from mediator.errors import MediatorError
from mediator.stores.embedded.lock import DataDirectoryBusy
from mediator.stores.embedded.port import EmbeddedStartError

if TYPE_CHECKING:
    from app.settings import HttpSettings, MediatorSettings

__all__ = ["AdminPort", "DataDir", "Port", "overridden", "run"]

DataDir = Annotated[Path | None, typer.Option(help="Where embedded stores keep their data.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the data API.")]
AdminPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the admin API.")]

_CANNOT_RUN: Final[tuple[type[Exception], ...]] = (
    DataDirectoryBusy,
    EmbeddedStartError,
    MediatorError,
    OSError,
)

S = TypeVar("S", "HttpSettings", "MediatorSettings")


def run(task: Coroutine[Any, Any, None], *failures: type[Exception]) -> None:
    """Carry a command out; what it cannot do ends it with a sentence instead of a traceback.

    Args:
        task: The command.
        failures: What ends it like that besides what may end any.
    """
    import uvloop

    from app.settings import MissingSetting

    cannot_run: tuple[type[Exception], ...] = (MissingSetting, *_CANNOT_RUN, *failures)
    try:
        uvloop.run(_ended_for_certain(task))
    except Interrupted:
        errors.print("Interrupted.")
        raise typer.Exit(130) from None
    except cannot_run as error:
        errors.print(f"Portolan cannot run: {error}")
        raise typer.Exit(1) from None


async def _ended_for_certain(task: Coroutine[Any, Any, None]) -> None:
    try:
        await task
    except NotClosed:
        errors.print("Some system does not answer: its connections are cut off.")
        os._exit(0)  # the event loop would wait for what is left of them


def overridden(settings: S, **given: Any) -> S:
    """Let options given on the command line win over the environment."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return type(settings).model_validate({**settings.model_dump(), **chosen})
