"""What a catalogue keeps of its installation as a whole: its id, and highest numbers."""

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


async def highest(catalogue: Catalogue, name: str, number: int) -> int:
    """Return the highest number that was ever given under a name, this one included; keep it.

    Raises:
        Unavailable: The catalogue does not answer.
    """
    first = insert(secrets).values(name=name, value=str(number)).on_conflict_do_nothing()
    of_name = secrets.c.name == name
    async with catalogue.begin() as connection:
        await connection.execute(first)
        stored = select(secrets.c.value).where(of_name).with_for_update()
        text = str((await connection.execute(stored)).scalar_one())
        # A row that was restored is whatever the backup says.
        known = int(text) if _NUMBER.fullmatch(text) else 0
        if number > known:
            await connection.execute(update(secrets).where(of_name).values(value=str(number)))
    return max(number, known)
