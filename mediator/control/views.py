"""What a schema with a primary asks of the systems, and of those who keep primaries up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mediator.base.errors import Location, SchemaInvalid
from mediator.control.layout import copies_of, location_of
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import Mode, Schema
from mediator.stores.port import Fragment, Mirror
from mediator.stores.systems import Systems

__all__ = [
    "PrimaryKeeper",
    "check_primary",
    "notes_on_primary",
    "outdated",
    "unheld",
    "without_copies",
]


class PrimaryKeeper(Protocol):
    """Keeps primaries up; see `mediator.materialisation.service.MaterialiseService`."""

    @property
    def is_at_work(self) -> bool:
        """Whether primaries are kept up at all."""

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Take copies for incomplete, whatever is known of them; raises `Unavailable`."""


def without_copies(systems: Systems) -> list[str]:
    """Name the systems that take no copies."""
    return [guarded.name for guarded in systems if not isinstance(guarded.store, Mirror)]


def check_primary(schema: Schema, primary: str | None, systems: Systems) -> None:
    """Raise `SchemaInvalid` if a database is to have a primary and no system can be it."""
    if schema.mode is not Mode.MICROBATCHED:
        return
    if primary is None:
        mistake = "no system that takes copies is proven for scans, sorting and range queries"
        place = Location("/primary", mistake)
    else:
        guarded = systems.find(primary)
        if guarded is None or isinstance(guarded.store, Mirror):
            return
        mistake = f"{primary} cannot hold copies of objects"
        place = Location("/primary/system", mistake)
    raise SchemaInvalid(f"There is no primary: {mistake}.", locations=[place])


def notes_on_primary(schema: Schema, keeper: PrimaryKeeper) -> list[str]:
    """Point out that a primary will not be kept up."""
    if schema.mode is not Mode.MICROBATCHED or keeper.is_at_work:
        return []
    return ["Without a coordination Redis nothing is copied into the primary: it answers no reads."]


def unheld(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies of a new layout that the primary does not hold so far."""
    held = set(map(location_of, copies_of(present)))
    return [copy for copy in copies_of(new) if location_of(copy) not in held]


def outdated(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies that the primary need not hold any more."""
    kept = set(map(location_of, copies_of(new)))
    return [copy for copy in copies_of(present) if location_of(copy) not in kept]
