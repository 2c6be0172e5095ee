"""Prevents a `portolan` process from closing its connections: see `Forked.start`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from app.commands import serve
from app.service.interruption import closing
from mediator.service import Mediator

__all__ = ["fail_unclosed", "never_close"]

WITHIN_S = 0.1
"""Any time is too short."""


def never_close() -> None:
    """Make `Mediator.stop` hang even if cancelled, and shorten the wait for it."""
    Mediator.stop = _stop  # type: ignore[assignment,method-assign]
    unbound: Any = closing
    unbound.__wrapped__.__defaults__ = (WITHIN_S,)


def fail_unclosed(error: Exception) -> None:
    """Make the service fail once it serves, and never close."""

    def fail(_: object) -> None:
        raise error

    never_close()
    serve._announce = fail  # type: ignore[assignment]  # noqa: SLF001 - the last step of the start


async def _stop(_: Mediator) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
