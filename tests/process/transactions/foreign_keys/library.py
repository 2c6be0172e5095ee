"""A library: authors, and classes that refer to them with each action."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from mediator.base.errors import Locked, MediatorError, NotFound
from mediator.model.operations import Create, Delete, Put, ReadModifyWrite, Update, WriteOperation
from tests.faults.conditions import eventually
from tests.process.service import Service, error_of, field_on, unique

__all__ = [
    "ACTIONS",
    "CLASSES",
    "WRITES",
    "author_of",
    "create_reference",
    "delete",
    "error_of",
    "exists",
    "is_dangling",
    "write_unlocked",
]

ACTIONS: Final = ("refuse", "cascade", "nullify")


def _reference(system: str, to: str, on_delete: str, **members: Any) -> dict[str, Any]:
    return field_on(system, "reference", to=to, on_delete=on_delete, index=True, **members)


CLASSES: Final = {
    "authors": {"fields": {"name": field_on("postgres"), "hits": field_on("redis", group="hits")}},
    "refuse": {"fields": {"author": _reference("redis", "authors", "refuse")}},
    "cascade": {
        "fields": {"author": _reference("mongo", "authors", "cascade"), "t": field_on("postgres")}
    },
    "nullify": {"fields": {"author": _reference("postgres", "authors", "nullify")}},
    "notes": {"fields": {"author": _reference("redis", "cascade", "cascade")}},
    "several": {
        "fields": {
            "authors": field_on(
                "mongo",
                "list",
                items="reference",
                to="authors",
                index=True,
                max_length=9,
                on_delete="nullify",
            )
        }
    },
    "nodes": {"fields": {"author": _reference("postgres", "nodes", "cascade")}},
}
"""The foreign key of each class is its field `author`; that of `several` is a list."""

WRITES: Final[dict[str, Callable[..., WriteOperation]]] = {
    "create": lambda db, c, i, to: Create(db, c, i, unique(), values={"author": to}),
    "put": lambda db, c, i, to: Put(db, c, i, unique(), values={"author": to}),
    "update": lambda db, c, i, to: Update(db, c, i, unique(), values={"author": to}),
    "read_modify_write": lambda db, c, i, to: ReadModifyWrite(
        db, c, i, unique(), compute=lambda _: {"author": to}
    ),
}
"""Writes that make an object refer to another one; the last two need an existing object."""


def create_reference(library: str, class_name: str, id_: str, to: str) -> Create:
    return Create(library, class_name, id_, unique(), values={"author": to})


async def write_unlocked(mediator: Service, operation: WriteOperation) -> MediatorError | None:
    """Write until the object is not locked; return the error of a refusal."""
    errors: list[MediatorError | None] = []

    async def is_unlocked() -> bool:
        errors.append(await error_of(mediator, operation))
        return not isinstance(errors[-1], Locked)

    await eventually(is_unlocked)
    return errors[-1]


async def exists(mediator: Service, library: str, class_name: str, id_: str) -> bool:
    with suppress(NotFound):
        await mediator.get(library, class_name, id_)
        return True
    return False


async def author_of(mediator: Service, library: str, class_name: str, id_: str) -> Any:
    return (await mediator.values(library, class_name, id_) or {}).get("author")


async def is_dangling(mediator: Service, library: str, class_name: str, id_: str) -> bool:
    """Whether an object exists and refers to one that does not."""
    if not await exists(mediator, library, class_name, id_):
        return False
    author = await author_of(mediator, library, class_name, id_)
    key = next(
        iter(mediator.mediator.data.model.databases[library].classes[class_name].foreign_keys)
    )
    return author is not None and not await exists(mediator, library, key.to, author)


def delete(library: str, id_: str, class_name: str = "authors") -> Delete:
    return Delete(library, class_name, id_, unique())
