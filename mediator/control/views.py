"""What a schema with a view asks of the systems, and of those who keep views up."""

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
    "ViewMaintainer",
    "check_view",
    "notes_on_view",
    "outdated",
    "unheld",
    "without_copies",
]


class ViewMaintainer(Protocol):
    """Keeps views up; see `mediator.materialisation.service.MaterialiseService`."""

    @property
    def is_at_work(self) -> bool:
        """Whether views are kept up at all."""

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Take copies for incomplete, whatever is known of them; raises `Unavailable`."""


def without_copies(systems: Systems) -> list[str]:
    """Name the systems that take no copies."""
    return [guarded.name for guarded in systems if not isinstance(guarded.store, Mirror)]


def check_view(schema: Schema, view: str | None, systems: Systems) -> None:
    """Raise `SchemaInvalid` if a database is to have a view and no system can be it."""
    if schema.mode is not Mode.MICROBATCHED:
        return
    if view is None:
        mistake = "no system that takes copies is proven for scans, sorting and range queries"
        place = Location("/materialised_view", mistake)
    else:
        guarded = systems.find(view)
        if guarded is None or isinstance(guarded.store, Mirror):
            return
        mistake = f"{view} cannot hold copies of objects"
        place = Location("/materialised_view/system", mistake)
    raise SchemaInvalid(f"There can be no materialised view: {mistake}.", locations=[place])


def notes_on_view(schema: Schema, keeper: ViewMaintainer) -> list[str]:
    """Point out that a view will not be kept up."""
    if schema.mode is not Mode.MICROBATCHED or keeper.is_at_work:
        return []
    return ["Without a coordination Redis nothing is copied into the view: it answers no reads."]


def unheld(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies of a new layout that the view does not hold so far."""
    held = set(map(location_of, copies_of(present)))
    return [copy for copy in copies_of(new) if location_of(copy) not in held]


def outdated(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies that the view need not hold any more."""
    kept = set(map(location_of, copies_of(new)))
    return [copy for copy in copies_of(present) if location_of(copy) not in kept]
