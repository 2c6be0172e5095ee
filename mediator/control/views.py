"""Requirements of a schema's materialised view on the systems."""

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
    "missing_copies",
    "notes_on_view",
    "obsolete_copies",
    "without_copies",
]


class ViewMaintainer(Protocol):
    """Maintains views; see `mediator.materialisation.service.ViewService`."""

    @property
    def is_active(self) -> bool:
        """Whether views are maintained at all."""

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Mark copies as incomplete, so that they are built anew; raises `Unavailable`."""


def without_copies(systems: Systems) -> list[str]:
    """Return the names of the systems that cannot hold copies."""
    return [guarded.name for guarded in systems if not isinstance(guarded.store, Mirror)]


def check_view(schema: Schema, view: str | None, systems: Systems) -> None:
    """Raise `SchemaInvalid` if a database is to have a view and no system can hold it."""
    if schema.mode is not Mode.MICROBATCHED:
        return
    if view is None:
        mistake = "no system that takes copies is proven for scans, sorting and range queries"
        location = Location("/materialised_view", mistake)
    else:
        guarded = systems.find(view)
        if guarded is None or isinstance(guarded.store, Mirror):
            return
        mistake = f"{view} cannot hold copies of objects"
        location = Location("/materialised_view/system", mistake)
    raise SchemaInvalid(f"There can be no materialised view: {mistake}.", locations=[location])


def notes_on_view(schema: Schema, maintainer: ViewMaintainer) -> list[str]:
    """Return the note that a view will not be maintained, if so."""
    if schema.mode is not Mode.MICROBATCHED or maintainer.is_active:
        return []
    return ["Without a coordination Redis nothing is copied into the view: it answers no reads."]


def missing_copies(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies of a new layout that the view does not have yet."""
    present_copies = set(map(location_of, copies_of(present)))
    return [copy for copy in copies_of(new) if location_of(copy) not in present_copies]


def obsolete_copies(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    """Return the copies that the view does not need any more."""
    needed = set(map(location_of, copies_of(new)))
    return [copy for copy in copies_of(present) if location_of(copy) not in needed]
