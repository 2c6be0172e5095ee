"""Findings of the evaluation of placements, for all replicas: violations and proposals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, select

from mediator.base.observation import ViolationDetected
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import databases, proposals, violations
from mediator.placement.proposals import Proposal, Proposals

__all__ = ["CatalogueEvents", "CatalogueProposals"]

KEPT = 10_000
"""Events kept at most; older ones are dropped."""

SHOWN = 1_000
"""Events listed at most."""


class CatalogueEvents:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def record(self, phase: str, event: ViolationDetected) -> None:
        """Keep the beginning or the end of a violation, and drop events beyond `KEPT`."""
        row = {name: getattr(event, name) for name in ViolationDetected.__slots__}
        newest = select(func.max(violations.c.id)).scalar_subquery()
        async with self._catalogue.begin() as connection:
            await connection.execute(violations.insert().values(phase=phase, **row))
            await connection.execute(delete(violations).where(violations.c.id <= newest - KEPT))

    async def newest(self, database: str | None = None) -> list[dict[str, Any]]:
        """List up to `SHOWN` events, newest first, of all databases or one."""
        query = select(violations).order_by(violations.c.id.desc()).limit(SHOWN)
        if database is not None:
            query = query.where(violations.c.database == database)
        rows = (await self._catalogue.execute(query)).mappings()
        return [{**row, "at": row["at"].isoformat()} for row in rows]


class CatalogueProposals:
    """Proposals by the ids of databases, and removed with them. Times are the catalogue's."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def load(self) -> tuple[float, dict[str, Proposals]]:
        """Return the time (seconds since 1970), and the proposals of all databases by id."""
        async with self._catalogue.begin() as connection:
            now: datetime = (await connection.execute(select(func.now()))).scalar_one()
            rows = await connection.execute(select(proposals).order_by(proposals.c.node))
        found: defaultdict[str, dict[str, Proposal]] = defaultdict(dict)
        for row in rows.mappings():
            members: dict[str, Any] = {
                n: v.timestamp() if isinstance(v, datetime) else v for n, v in row.items()
            }
            proposed = found[members.pop("database_id")]
            proposed[members["node"]] = Proposal(**members)
        return now.timestamp(), {id_: Proposals(by_node) for id_, by_node in found.items()}

    async def store(self, database_id: str, proposed: Proposals) -> None:
        rows = [_row(database_id, proposal) for proposal in proposed.by_node.values()]
        locked = select(databases.c.id).where(databases.c.id == database_id).with_for_update()
        former = delete(proposals).where(proposals.c.database_id == database_id)
        async with self._catalogue.begin() as connection:
            # The row lock keeps a drop from coming in between, which would violate the foreign key.
            if (await connection.execute(locked)).first() is None:
                return  # it was dropped
            await connection.execute(former)
            if rows:
                await connection.execute(proposals.insert(), rows)


def _row(database_id: str, proposal: Proposal) -> dict[str, Any]:
    since, lost_at = proposal.since, proposal.lost_at
    return {
        **asdict(proposal),
        "database_id": database_id,
        "since": datetime.fromtimestamp(since, UTC),
        "lost_at": None if lost_at is None else datetime.fromtimestamp(lost_at, UTC),
    }
