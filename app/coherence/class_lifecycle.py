"""Classes that have never been before have no copies in any cache, and the sketch may be told so.

A partition that the sketch does not know counts as lost otherwise: everything of it is revalidated,
    and
nothing may be cached, until no copy can be alive. Whether a class has ever been, the catalogue
knows: it keeps a word for each, for ever.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable

from app.coherence.write_guard import SketchGuard
from mediator.base.errors import MediatorError
from sketch.protocol.port import Partition, ServerSketch, SketchUnavailable

__all__ = ["Beginnings"]

_log = logging.getLogger("portolan.coherence")


class Beginnings:
    """Tells the sketch of classes before they are made.

    Args:
        sketch: The server's sketch.
        first_word: Returns the word that was proposed first under a name, and keeps it.
        guard: Told of classes that are something else now.
    """

    def __init__(
        self,
        sketch: ServerSketch,
        first_word: Callable[[str, str], Awaitable[str]],
        guard: SketchGuard,
    ) -> None:
        self._guard = guard
        self._sketch = sketch
        self._first_word = first_word
        self._known: set[Partition] = set()

    async def announce(self, database: str, names: Iterable[str]) -> None:
        """Tell of classes that are about to be made, or are there already.

        Where it fails the class begins as if its partition were lost, which is safe.
        """
        for partition in {Partition(database, name) for name in names} - self._known:
            try:
                await self._begin(partition)
            except (MediatorError, SketchUnavailable) as error:
                _log.warning("the sketch was not told of %s: %s", "/".join(partition), error)
            else:
                self._known.add(partition)

    async def changed(self, database: str, names: Iterable[str]) -> None:
        """Tell of classes that have another schema now: queries may find something else.

        Where it fails the next read or write of the class does it.
        """
        for name in names:
            try:
                await self._guard.relaid(database, name)
                await self._guard.unsure(database, name)
            except MediatorError as error:
                _log.warning("results of %s/%s were not taken back: %s", database, name, error)

    async def ended(self, database: str, names: Iterable[str]) -> None:
        """Tell of classes that are no more: another one may get the name before all copies end."""
        for name in names:
            try:
                await self._guard.renew(database, name)
            except MediatorError as error:
                _log.warning("copies of %s/%s were not doubted: %s", database, name, error)

    async def _begin(self, partition: Partition) -> None:
        ours = secrets.token_hex(16)
        if await self._first_word(f"sketch:{'/'.join(partition)}", ours) == ours:
            await self._sketch.create(partition)
