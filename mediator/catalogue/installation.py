"""Installation-wide values of a catalogue: its id, and highest numbers."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import inspect, select, update
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import SCHEMA, installation, secrets

__all__ = ["highest", "installation_id", "installation_id_if_any"]

_NUMBER: Final = re.compile("[0-9]{1,18}")


async def installation_id(catalogue: Catalogue) -> str:
    """Return the id, which only this catalogue and its copies have.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    return str((await catalogue.execute(select(installation.c.id))).scalar_one())


async def installation_id_if_any(catalogue: Catalogue) -> str | None:
    """Return the id; None: the tables, and the id with them, are not created yet.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    table = installation.name
    exists = await catalogue.run_sync(
        lambda connection: inspect(connection).has_table(table, SCHEMA)
    )
    return await installation_id(catalogue) if exists else None


async def highest(catalogue: Catalogue, name: str, number: int) -> int:
    """Store and return the highest number ever passed under a name, this one included.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    insertion = insert(secrets).values(name=name, value=str(number)).on_conflict_do_nothing()
    has_name = secrets.c.name == name
    async with catalogue.begin() as connection:
        await connection.execute(insertion)
        stored = select(secrets.c.value).where(has_name).with_for_update()
        text = str((await connection.execute(stored)).scalar_one())
        # A restored row can hold any text.
        highest_so_far = int(text) if _NUMBER.fullmatch(text) else 0
        if number > highest_so_far:
            await connection.execute(update(secrets).where(has_name).values(value=str(number)))
    return max(number, highest_so_far)
