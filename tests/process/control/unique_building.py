"""Users of a database whose addresses become unique, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mediator.base.errors import NotUnique
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.data_plane.port import PAGE, pages
from mediator.model.operations import Create, Delete, Outcome
from tests.process.service import Service, error_of, field_on, unique

SYSTEMS: Final = ["redis", "postgres", "mongo"]
SPLIT: Final = {"redis": "postgres", "postgres": "mongo", "mongo": "redis"}
"""For each system another one, for fields of a group of their own."""

UNCHECKED: Final = ChangeOptions(unchecked=True)


def users(system: str, *together: str, **members: Any) -> dict[str, Any]:
    """Return a schema of users on a system, and on another one; `members` are those of `email`."""
    fields = {
        "email": field_on(system, group="keys", **members),
        "tenant": field_on(system, group="keys"),
        "name": field_on(SPLIT[system], group="names"),
    }
    unique_together = [list(together)] if together else []
    return {"classes": {"users": {"fields": fields, "unique": unique_together}}}


async def put(of: Service, database: str, document: dict[str, Any], **options: Any) -> SchemaChange:
    return await of.mediator.control.set_schema(database, document, **options)


async def filled(of: Service, system: str, emails: Sequence[str]) -> str:
    """Return a database with a user for each address, without a constraint."""
    database = await of.put_schema(users(system)["classes"])
    creations = [
        Create(database, "users", f"u{i:05}", unique(), values={"email": email, "tenant": "t"})
        for i, email in enumerate(emails)
    ]
    for begin in range(0, len(creations), PAGE):
        await of.mediator.data.batch(creations[begin : begin + PAGE])
    return database


async def objects(of: Service, database: str) -> dict[str, Outcome]:
    found = [page async for page in pages(of.mediator.data, database, "users")]
    return {outcome.id: outcome for page in found for outcome in page}


async def takes(of: Service, database: str, email: str) -> bool:
    """Whether another user can have an address, who does not stay."""
    error = await error_of(of, Create(database, "users", "new", unique(), values={"email": email}))
    if error is None:
        await of.mediator.data.write(Delete(database, "users", "new", unique()))
    assert error is None or isinstance(error, NotUnique), error
    return error is None


def is_building(of: Service, database: str) -> bool:
    """Whether the model in force has a constraint that the schema does not have yet."""
    [class_] = of.mediator.data.model.databases[database].schema.classes.values()
    return bool(class_.unique)
