"""Violation events, kept for operators."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, func, select

from mediator.base.observation import ViolationDetected
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import databases, violations
from mediator.catalogue.tables import proposals as table
from mediator.placement.proposals import Proposal, Proposals

__all__ = ["CatalogueEvents", "CatalogueProposals"]

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


class CatalogueProposals:
    """Keeps proposals by the ids of databases, with which they go. Times are the catalogue's."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def load(self) -> tuple[float, dict[str, Proposals]]:
        """Return the time (seconds since 1970), and the proposals of all databases by id."""
        async with self._catalogue.begin() as connection:
            now: datetime = (await connection.execute(select(func.now()))).scalar_one()
            rows = (await connection.execute(select(table).order_by(table.c.node))).all()
        found: defaultdict[str, dict[str, Proposal]] = defaultdict(dict)
        for row in rows:
            found[row.database_id][row.node] = _proposal(row)
        return now.timestamp(), {id_: Proposals(by_node) for id_, by_node in found.items()}

    async def store(self, database_id: str, proposals: Proposals) -> None:
        """Keep the proposals of a database in the place of those there were."""
        rows = [_row(database_id, proposal) for proposal in proposals.by_node.values()]
        locked = select(databases.c.id).where(databases.c.id == database_id).with_for_update()
        async with self._catalogue.begin() as connection:
            if (await connection.execute(locked)).first() is None:
                return  # it was dropped
            await connection.execute(delete(table).where(table.c.database_id == database_id))
            if rows:
                await connection.execute(table.insert(), rows)


def _proposal(row: Row[Any]) -> Proposal:
    return Proposal(
        row.node,
        row.current,
        row.proposed,
        row.margin,
        row.since.timestamp(),
        row.recorded,
        None if row.lost_at is None else row.lost_at.timestamp(),
        row.why,
    )


def _row(database_id: str, proposal: Proposal) -> dict[str, Any]:
    lost_at = proposal.lost_at
    return {
        "database_id": database_id,
        "node": proposal.node,
        "current": proposal.current,
        "proposed": proposal.proposed,
        "margin": proposal.margin,
        "since": datetime.fromtimestamp(proposal.since, UTC),
        "recorded": proposal.recorded,
        "lost_at": None if lost_at is None else datetime.fromtimestamp(lost_at, UTC),
        "why": proposal.why,
    }
