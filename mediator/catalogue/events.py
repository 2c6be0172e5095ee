"""Violation events, kept for operators."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, select

from mediator.base.observation import ViolationDetected
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import violations

__all__ = ["CatalogueEvents"]

KEPT = 10_000
"""Events kept at most; older ones are dropped."""

SHOWN = 1_000
"""Events listed at most."""


class CatalogueEvents:
    """Records and lists violations."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def record(self, phase: str, event: ViolationDetected) -> None:
        """Keep the beginning or the end of a violation, and drop events beyond `KEPT`."""
        row = {name: getattr(event, name) for name in ViolationDetected.__slots__}
        async with self._catalogue.begin() as connection:
            await connection.execute(violations.insert().values(phase=phase, **row))
            newest = select(func.max(violations.c.id)).scalar_subquery()
            await connection.execute(delete(violations).where(violations.c.id <= newest - KEPT))

    async def newest(self, database: str | None = None) -> list[dict[str, Any]]:
        """List events, newest first, of all databases or one."""
        query = select(violations).order_by(violations.c.id.desc()).limit(SHOWN)
        if database is not None:
            query = query.where(violations.c.database == database)
        async with self._catalogue.begin() as connection:
            rows = await connection.execute(query)
            return [{**row, "at": row["at"].isoformat()} for row in rows.mappings()]
