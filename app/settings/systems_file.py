"""Systems in a file, which is reread when it changes: `PORTOLAN_SYSTEMS_FILE`.

The file is polled, not watched: for mounted secrets, Kubernetes replaces directories, of which file
watchers are not notified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.settings.main import MissingSetting, SystemSettings
from mediator.base.errors import MediatorError
from mediator.base.periodic_tasks import PeriodicTask
from mediator.control.port import SystemRegistration
from mediator.schema.corrections import correction

__all__ = ["SystemsFile", "read_systems"]

_log = logging.getLogger("portolan.systems")
_MAX_BYTES: Final = 2**20
_INTERVAL_S: Final = 2.0
_ADAPTER: Final = TypeAdapter(list[SystemSettings])


def read_systems(path: Path) -> list[SystemSettings]:
    """Read the systems of a file, or raise `MissingSetting`.

    Messages do not quote the file, as it contains passwords.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path} is too long.")
        return _ADAPTER.validate_json(text)
    except OSError as error:
        raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path}: {error.strerror}.") from None
    except ValidationError as error:
        locations = [_location(item) for item in error.errors()[:5]]
        raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path}: {', '.join(locations)}.") from None


def _location(error: ErrorDetails) -> str:
    """Return the location and the type of an error, without values of the file."""
    path, hint = error["loc"], correction(_ADAPTER, None, error["loc"], error)
    return f"{'/'.join(map(str, path))}: {error['type']}{hint}"


@dataclass(eq=False)
class SystemsFile:
    """A file that is applied when it changes.

    Attributes:
        _apply: Reconfigures the systems; returns the names of those that changed.
        _applied: None: the first check applies the file, which may have changed since it was read
            at the start.
    """

    _path: Path
    _apply: Callable[[Sequence[SystemRegistration]], Awaitable[list[str]]]
    _applied: list[SystemSettings] | None = field(default=None, init=False)
    _failure: str = field(default="", init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask("reading the file of systems", _INTERVAL_S, self.apply_changes)

    async def apply_changes(self) -> None:
        """Apply the file if it has changed; a failure is retried the next time."""
        # SIGHUP can call this while the periodic task runs.
        async with self._lock:
            try:
                systems = await asyncio.to_thread(read_systems, self._path)
                if systems != self._applied:
                    changed = await self._apply([system.registration() for system in systems])
                    self._applied = systems
                    if changed:
                        _log.info("systems with changed settings: %s", ", ".join(changed))
                self._failure = ""
            except (MissingSetting, MediatorError) as error:
                if str(error) != self._failure:
                    _log.warning("%s The earlier systems stay in use.", error)
                self._failure = str(error)
