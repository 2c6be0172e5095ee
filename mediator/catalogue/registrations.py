"""Systems as their operator registered them, with the findings about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.epochs import lock_epoch
from mediator.catalogue.tables import secrets, systems
from mediator.catalogue.used_systems import check_unused

__all__ = ["CatalogueSystems", "StoredSystem"]


@dataclass(frozen=True, slots=True)
class StoredSystem:
    """One system: its registration, and the findings of probe and calibration, as JSON."""

    name: str
    registration: dict[str, Any]
    findings: dict[str, Any]


class CatalogueSystems:
    """Reads and changes registrations; their order is the order of first registration."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def load(self) -> list[StoredSystem]:
        rows = await self._catalogue.execute(select(systems).order_by(systems.c.position))
        return [StoredSystem(row.name, row.registration, row.findings) for row in rows]

    async def change(
        self, name: str, change: Callable[[StoredSystem | None], StoredSystem]
    ) -> None:
        """Replace a system by the result of `change`; a new one is the last in the order.

        `change` gets the stored system, which no other replica changes meanwhile.
        """
        last = select(func.coalesce(func.max(systems.c.position), 0) + 1).scalar_subquery()
        stored = select(systems).where(systems.c.name == name).with_for_update()
        async with self._catalogue.begin() as connection:
            present = (await connection.execute(stored)).first()
            former = StoredSystem(name, present.registration, present.findings) if present else None
            system = change(former)
            values = {"registration": system.registration, "findings": system.findings}
            new = insert(systems).values(name=name, position=last, **values)
            row = new.on_conflict_do_update(index_elements=["name"], set_=values)
            await connection.execute(row)

    async def remove(self, name: str) -> None:
        """Remove a system that no database uses.

        Raises:
            Conflict: A class has data on it; `extra["classes"]` lists them.
        """
        async with self._catalogue.begin() as connection:
            await lock_epoch(connection)  # so no class is placed there after the check
            await check_unused(connection, name)
            await connection.execute(delete(systems).where(systems.c.name == name))

    async def secret(self, name: str, proposal: str) -> str:
        """Return a secret that all replicas share: the first one that was ever proposed."""
        row = insert(secrets).values(name=name, value=proposal).on_conflict_do_nothing()
        async with self._catalogue.begin() as connection:
            await connection.execute(row)
            # Read after the insert: another replica may have been first.
            query = select(secrets.c.value).where(secrets.c.name == name)
            return str((await connection.execute(query)).scalar_one())
