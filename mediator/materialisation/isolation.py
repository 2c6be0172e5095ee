"""Copying many objects although some of them cannot be copied, for reasons of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mediator.materialisation.copier import CHUNK, Copier
from mediator.routing.model import ClassRoute
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems

__all__ = ["Bringer", "Brought"]

log = logging.getLogger(__name__)

_NONE: Final = ()


@dataclass(frozen=True, slots=True)
class Brought:
    """What came of copying objects.

    Attributes:
        written: Copies that were written.
        stuck: Objects that could not be copied, though their systems are well.
        error: Why the last one of them could not.
    """

    written: int = 0
    stuck: tuple[str, ...] = _NONE
    error: str = ""

    def __add__(self, other: Brought) -> Brought:
        return Brought(
            self.written + other.written, self.stuck + other.stuck, other.error or self.error
        )


class Bringer:
    """Copies objects; those that cannot be are told, and keep nothing from the others."""

    def __init__(self, systems: Systems, copier: Copier) -> None:
        self._systems = systems
        self._copier = copier

    async def bring(self, route: ClassRoute, ids: Sequence[str]) -> Brought:
        """Bring objects into the view as they are now.

        Raises:
            Unavailable: A system of the class, or the view, is not well.
        """
        brought = Brought()
        for start in range(0, len(ids), CHUNK):
            brought += await self._some(route, ids[start : start + CHUNK])
        return brought

    async def _some(self, route: ClassRoute, ids: Sequence[str]) -> Brought:
        try:
            return Brought(await self._copier.copy(route, ids))
        except Exception as error:
            if not await self._well(route):
                raise
            if len(ids) == 1:
                log.warning("%s/%s cannot be copied: %s", route.schema.name, ids[0], error)
                return Brought(0, tuple(ids), str(error) or type(error).__name__)
        half = len(ids) // 2
        return await self._some(route, ids[:half]) + await self._some(route, ids[half:])

    async def _well(self, route: ClassRoute) -> bool:
        assert route.copy is not None
        for name in {fragment.system for fragment in (*route.fragments, route.copy)}:
            guarded = self._systems.find(name)
            if guarded is None:
                return False
            try:
                await guarded.guarded(guarded.store.ping)
            except StoreError:
                return False
        return True
