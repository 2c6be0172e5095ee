"""A database of users whose addresses become unique, and requests to it."""

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
"""For each system another one, for fields of a separate group."""

UNCHECKED: Final = ChangeOptions(unchecked=True)


def users(system: str, *together: str, **members: Any) -> dict[str, Any]:
    """Return a schema of users on two systems; `members` are those of the field `email`."""
    fields = {
        "email": field_on(system, group="keys", **members),
        "tenant": field_on(system, group="keys"),
        "name": field_on(SPLIT[system], group="names"),
    }
    unique_together = [list(together)] if together else []
    return {"classes": {"users": {"fields": fields, "unique": unique_together}}}


async def put(
    mediator: Service, database: str, document: dict[str, Any], **options: Any
) -> SchemaChange:
    return await mediator.mediator.control.set_schema(database, document, **options)


async def fill_database(mediator: Service, system: str, emails: Sequence[str]) -> str:
    """Return a database with a user for each address, without a constraint."""
    database = await mediator.put_schema(users(system)["classes"])
    creations = [
        Create(database, "users", f"u{i:05}", unique(), values={"email": email, "tenant": "t"})
        for i, email in enumerate(emails)
    ]
    for start in range(0, len(creations), PAGE):
        await mediator.mediator.data.batch(creations[start : start + PAGE])
    return database


async def objects(mediator: Service, database: str) -> dict[str, Outcome]:
    all_pages = [page async for page in pages(mediator.mediator.data, database, "users")]
    return {outcome.id: outcome for page in all_pages for outcome in page}


async def can_claim(mediator: Service, database: str, email: str) -> bool:
    """Whether a new user can claim an address; the user is deleted afterwards."""
    error = await error_of(
        mediator, Create(database, "users", "new", unique(), values={"email": email})
    )
    if error is None:
        await mediator.mediator.data.write(Delete(database, "users", "new", unique()))
    assert error is None or isinstance(error, NotUnique), error
    return error is None


def is_building(mediator: Service, database: str) -> bool:
    """Whether the model in force has a constraint that the schema lacks so far."""
    [class_] = mediator.mediator.data.model.databases[database].schema.classes.values()
    return bool(class_.unique)
