"""Systems that a file names, which is read again when it changes: `PORTOLAN_SYSTEMS_FILE`.

The file is polled, not watched: where secrets are mounted, as Kubernetes does it, directories are
replaced under it, of which watchers of files are not notified.
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
_LONGEST: Final = 2**20
_EVERY_S: Final = 2.0
_SYSTEMS: Final = TypeAdapter(list[SystemSettings])


def read_systems(path: Path) -> list[SystemSettings]:
    """Read the systems of a file, or raise `MissingSetting`.

    What the file says is not quoted, as there are passwords among it.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path} is too long.")
        return _SYSTEMS.validate_json(text)
    except OSError as error:
        raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path}: {error.strerror}.") from None
    except ValidationError as error:
        locations = [_location(each) for each in error.errors()[:5]]
        raise MissingSetting(f"PORTOLAN_SYSTEMS_FILE: {path}: {', '.join(locations)}.") from None


def _location(error: ErrorDetails) -> str:
    """Return where a mistake is, and of what type; only names that are known are shown."""
    path, meant = error["loc"], correction(_SYSTEMS, None, error["loc"], error)
    return f"{'/'.join(map(str, path))}: {error['type']}{meant}"


@dataclass(eq=False)
class SystemsFile:
    """A file that is applied when it changes.

    Attributes:
        _apply: Reconfigures the systems; returns the names of those that changed.
        _applied: None: the first look applies the file, which may have changed since it was read
            for the start.
    """

    _path: Path
    _apply: Callable[[Sequence[SystemRegistration]], Awaitable[list[str]]]
    _applied: list[SystemSettings] | None = field(default=None, init=False)
    _failure: str = field(default="", init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask("reading the file of systems", _EVERY_S, self.look)

    async def look(self) -> None:
        """Apply the file if it has changed; what cannot be applied is tried again the next time."""
        # SIGHUP may call this while the periodic task is at it.
        async with self._lock:
            try:
                systems = await asyncio.to_thread(read_systems, self._path)
                if systems != self._applied:
                    changed = await self._apply([system.registration() for system in systems])
                    self._applied = systems
                    if changed:
                        _log.info("systems that are reached in another way: %s", ", ".join(changed))
                self._failure = ""
            except (MissingSetting, MediatorError) as error:
                if str(error) != self._failure:
                    _log.warning("%s What was applied before holds.", error)
                self._failure = str(error)
