"""Databases that were dropped a short while ago, of which something may be left elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import delete, func, select

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.catalogue.tables import databases
from mediator.catalogue.tables import dropped_databases as table

__all__ = ["DroppedDatabases"]

_CLEARED_FOR: Final = timedelta(hours=1)
"""For how long what is left of a dropped database is cleared again: by then no replica is left that
could still write something under its id."""


class DroppedDatabases:
    """Reads and forgets them; `CatalogueSchemas.remove` adds them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def load(self) -> list[StoredDatabase]:
        """Return them as they were; in a catalogue that was restored, one may be there again."""
        gone = select(table).where(table.c.id.not_in(select(databases.c.id)))
        rows = await self._catalogue.execute(gone)
        return [StoredDatabase(r.name, r.id, 0, r.document, r.layout) for r in rows]

    async def forget(self, id_: str) -> None:
        """Forget one that has been cleared, if nobody can write to it any more."""
        late = table.c.at < func.now() - _CLEARED_FOR
        await self._catalogue.execute(delete(table).where(table.c.id == id_, late))
