"""The rules of admission control, the replica that evaluates them, and the log of fired rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from mediator.base.errors import PreconditionFailed
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schema_revisions import Author
from mediator.catalogue.tables import admission_evaluator, admission_log, admission_rules, runs

__all__ = ["MAX_LOG_ENTRIES", "NO_RULES", "CatalogueAdmission", "StoredRules"]

MAX_LOG_ENTRIES: Final = 1_000
"""Maximum number of log entries; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class StoredRules:
    """Rules as they were set.

    Attributes:
        version: How often rules were set.
        author: Who has set them; None: unknown, as where requests need no key.
        at: When; None: none were ever set.
    """

    version: int
    text: str
    author: Author | None
    at: datetime | None


NO_RULES: Final = StoredRules(0, "", None, None)


class CatalogueAdmission:
    """Every method raises `Unavailable` if the catalogue does not answer."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def rules(self) -> StoredRules:
        row = (await self._catalogue.execute(select(admission_rules))).first()
        return NO_RULES if row is None else _stored(row)

    async def newer(self, version: int) -> StoredRules | None:
        """Return the rules if their version differs from this one."""
        query = select(admission_rules).where(admission_rules.c.version != version)
        row = (await self._catalogue.execute(query)).first()
        return None if row is None else _stored(row)

    async def put(
        self, text: str, author: Author | None, version: int | None, *, lets_go: bool
    ) -> StoredRules:
        """Set the rules.

        Args:
            text: Of rules that were checked.
            author: Who sets them.
            version: The version that they must replace; None: any.
            lets_go: Whether held runs are released, because no rule would start them any more.

        Raises:
            PreconditionFailed: The stored version is another.
        """
        row = insert(admission_rules).values(only=1, version=0, text="")
        values = {
            "version": admission_rules.c.version + 1,
            "text": text,
            "author": None if author is None else asdict(author),
            "at": func.now(),
        }
        async with self._catalogue.begin() as connection:
            await connection.execute(row.on_conflict_do_nothing())
            change = update(admission_rules).values(values)
            if version is not None:
                change = change.where(admission_rules.c.version == version)
            changed = (await connection.execute(change.returning(*admission_rules.c))).first()
            if changed is None:
                raise PreconditionFailed(f"The rules no longer have version {version}.")
            if lets_go:
                held_runs = update(runs).where(runs.c.held, runs.c.ended.is_(None))
                await connection.execute(held_runs.values(held=False, version=runs.c.version + 1))
        return _stored(changed)

    async def lease(self, replica: str, seconds: float) -> bool:
        """Take or renew the lease to evaluate rules on shared state; whether it is held."""
        values = {"replica": replica, "leased_until": func.now() + timedelta(seconds=seconds)}
        row = insert(admission_evaluator).values(only=1, **values)
        is_free = admission_evaluator.c.leased_until < func.now()
        is_own = admission_evaluator.c.replica == replica
        acquisition = row.on_conflict_do_update(
            index_elements=["only"], set_=values, where=is_free | is_own
        )
        result = await self._catalogue.execute(acquisition.returning(admission_evaluator.c.replica))
        return result.first() is not None

    async def record(self, replica: str, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries to the log, and drop those beyond `MAX_LOG_ENTRIES`."""
        newest = select(func.max(admission_log.c.id)).scalar_subquery()
        rows = [{"replica": replica, "entry": dict(entry)} for entry in entries]
        async with self._catalogue.begin() as connection:
            await connection.execute(admission_log.insert(), rows)
            is_expired = admission_log.c.id <= newest - MAX_LOG_ENTRIES
            await connection.execute(delete(admission_log).where(is_expired))

    async def log(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        """List entries, newest first; with `before`, those with a lower id."""
        query = select(admission_log).order_by(admission_log.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(admission_log.c.id < before)
        rows = await self._catalogue.execute(query)
        return [
            {"id": row.id, "at": row.at.isoformat(), "replica": row.replica, **row.entry}
            for row in rows
        ]


def _stored(row: Row[Any]) -> StoredRules:
    author = None if row.author is None else Author(**row.author)
    return StoredRules(row.version, row.text, author, row.at)
