"""The id of the installation that a catalogue is of."""

from __future__ import annotations

from sqlalchemy import inspect, select

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import SCHEMA, installation

__all__ = ["installation_id", "installation_id_if_any"]


async def installation_id(catalogue: Catalogue) -> str:
    """Return the id, which no other catalogue has but a copy of this one.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    return str((await catalogue.execute(select(installation.c.id))).scalar_one())


async def installation_id_if_any(catalogue: Catalogue) -> str | None:
    """Return the id; None: the tables are yet to be made, and will have one then.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    table = installation.name
    exists = await catalogue.run_sync(lambda own: inspect(own).has_table(table, SCHEMA))
    return await installation_id(catalogue) if exists else None
