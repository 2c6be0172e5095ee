"""Keeps systems that databases use registered, and databases off removed systems.

Both checks run under the lock of the epoch, as each change of a layout does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import cast, func, literal, select, true
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.base.errors import Conflict
from mediator.catalogue.tables import databases, systems

__all__ = ["check_registered", "check_unused"]

_USES: Final = "$ ? (@.view == $system || @.groups.*.system == $system)"
"""Whether the layout of a class names a system."""


async def check_unused(connection: AsyncConnection, system: str) -> None:
    """Raise `Conflict` if a class has data on a system; `extra["classes"]` lists them."""
    layout = func.jsonb_each(databases.c.layout).table_valued("key", "value")
    parameters = literal({"system": system}, JSONB)
    uses = func.jsonb_path_exists(cast(layout.c.value, JSONB), cast(_USES, JSONPATH), parameters)
    classes = select(databases.c.name, layout.c.key).join_from(databases, layout, true())
    query = classes.where(uses).order_by(databases.c.name, layout.c.key)
    users = [f"{name}.{class_name}" for name, class_name in await connection.execute(query)]
    if users:
        detail = f"The system {system} holds fragments or copies of {', '.join(users)}."
        raise Conflict(detail, extra={"classes": users})


async def check_registered(
    connection: AsyncConnection, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raise `Conflict` if a layout newly names a system that is not registered."""
    added = _systems_of(after) - _systems_of(before)
    if not added:
        return
    registered = await connection.execute(select(systems.c.name).where(systems.c.name.in_(added)))
    removed = sorted(added.difference(registered.scalars()))
    if removed:
        raise Conflict(f"The system {', '.join(removed)} was removed meanwhile; try again.")


def _systems_of(layout: Mapping[str, Any]) -> set[str]:
    groups = (placed for of_class in layout.values() for placed in of_class["groups"].values())
    views = (of_class["view"] for of_class in layout.values())
    return {placed["system"] for placed in groups} | {view for view in views if view is not None}
