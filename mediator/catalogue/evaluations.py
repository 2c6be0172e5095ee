"""Results of placement evaluation, for all replicas: violations and proposals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import RowMapping, delete, func, select

from mediator.base.observation import ViolationDetected
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import databases, proposals, violations
from mediator.placement.proposals import Proposal, Proposals, differ

__all__ = ["CatalogueEvents", "CatalogueProposals"]

MAX_EVENTS = 10_000
"""Maximum number of stored events; older ones are dropped."""

MAX_LISTED = 1_000
"""Maximum number of listed events."""


class CatalogueEvents:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def record(self, phase: str, event: ViolationDetected) -> None:
        """Store the beginning or the end of a violation, and drop events beyond `MAX_EVENTS`."""
        row = {name: getattr(event, name) for name in ViolationDetected.__slots__}
        newest = select(func.max(violations.c.id)).scalar_subquery()
        async with self._catalogue.begin() as connection:
            await connection.execute(violations.insert().values(phase=phase, **row))
            await connection.execute(
                delete(violations).where(violations.c.id <= newest - MAX_EVENTS)
            )

    async def newest(self, database: str | None = None) -> list[dict[str, Any]]:
        """List up to `MAX_LISTED` events, newest first, of all databases or one."""
        query = select(violations).order_by(violations.c.id.desc()).limit(MAX_LISTED)
        if database is not None:
            query = query.where(violations.c.database == database)
        rows = (await self._catalogue.execute(query)).mappings()
        return [{**row, "at": row["at"].isoformat()} for row in rows]


class CatalogueProposals:
    """Proposals by database id, removed with the database. Times are the catalogue's."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def load(self) -> tuple[float, dict[str, Proposals]]:
        """Return the time (seconds since 1970), and the proposals of all databases by id."""
        async with self._catalogue.begin() as connection:
            now = (await connection.execute(select(func.now()))).scalar_one()
            rows = await connection.execute(select(proposals).order_by(proposals.c.node))
        proposals_by_id: defaultdict[str, dict[str, Proposal]] = defaultdict(dict)
        for row in rows.mappings():
            proposals_by_id[row["database_id"]][row["node"]] = _proposal(row)
        return now.timestamp(), {
            id_: Proposals(by_node) for id_, by_node in proposals_by_id.items()
        }

    async def update(
        self,
        database_id: str,
        change: Callable[[Proposals, float], tuple[Proposals, list[Proposal]]],
    ) -> Sequence[Proposal]:
        """Change the present proposals of a database; no other replica does so meanwhile.

        Args:
            database_id: The database; a dropped one is left alone.
            change: From present proposals and the time (seconds since 1970).

        Returns:
            The proposals that the change has recorded.
        """
        is_of_database = proposals.c.database_id == database_id
        # It also prevents a concurrent drop, which would violate the foreign key.
        locked = select(databases.c.id).where(databases.c.id == database_id).with_for_update()
        async with self._catalogue.begin() as connection:
            if (await connection.execute(locked)).first() is None:
                return ()
            # Not the transaction's time: it may have waited for the lock.
            now = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
            rows = (await connection.execute(select(proposals).where(is_of_database))).mappings()
            before = Proposals({row["node"]: _proposal(row) for row in rows})
            after, recorded = change(before, now.timestamp())
            if differ(before, after):
                await connection.execute(delete(proposals).where(is_of_database))
                if after.by_node:
                    changed = [_row(database_id, proposal) for proposal in after.by_node.values()]
                    await connection.execute(proposals.insert(), changed)
        return recorded


def _proposal(row: RowMapping) -> Proposal:
    members: dict[str, Any] = {
        name: value.timestamp() if isinstance(value, datetime) else value
        for name, value in row.items()
        if name != "database_id"
    }
    return Proposal(**members)


def _row(database_id: str, proposal: Proposal) -> dict[str, Any]:
    since, lost_at = proposal.since, proposal.lost_at
    return {
        **asdict(proposal),
        "database_id": database_id,
        "since": datetime.fromtimestamp(since, UTC),
        "lost_at": None if lost_at is None else datetime.fromtimestamp(lost_at, UTC),
    }
