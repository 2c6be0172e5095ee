"""Authors, what refers to them in each way, and what is left of that."""

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
    "dangling",
    "delete",
    "error_of",
    "exists",
    "once_free",
    "referring",
]

ACTIONS: Final = ("refuse", "cascade", "nullify")


def _refers(system: str, to: str, on_delete: str, **members: Any) -> dict[str, Any]:
    return field_on(system, "reference", to=to, on_delete=on_delete, index=True, **members)


CLASSES: Final = {
    "authors": {"fields": {"name": field_on("postgres"), "hits": field_on("redis", group="hits")}},
    "refuse": {"fields": {"author": _refers("redis", "authors", "refuse")}},
    "cascade": {
        "fields": {"author": _refers("mongo", "authors", "cascade"), "t": field_on("postgres")}
    },
    "nullify": {"fields": {"author": _refers("postgres", "authors", "nullify")}},
    "notes": {"fields": {"author": _refers("redis", "cascade", "cascade")}},
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
    "nodes": {"fields": {"author": _refers("postgres", "nodes", "cascade")}},
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
"""How an object comes to refer to another one; the last two need it to be there."""


def referring(library: str, class_name: str, id_: str, to: str) -> Create:
    return Create(library, class_name, id_, unique(), values={"author": to})


async def once_free(mediator: Service, operation: WriteOperation) -> MediatorError | None:
    """Write until nobody is in the way; return why it was refused."""
    errors: list[MediatorError | None] = []

    async def written() -> bool:
        errors.append(await error_of(mediator, operation))
        return not isinstance(errors[-1], Locked)

    await eventually(written)
    return errors[-1]


async def exists(mediator: Service, library: str, class_name: str, id_: str) -> bool:
    with suppress(NotFound):
        await mediator.get(library, class_name, id_)
        return True
    return False


async def author_of(mediator: Service, library: str, class_name: str, id_: str) -> Any:
    return (await mediator.values(library, class_name, id_) or {}).get("author")


async def dangling(mediator: Service, library: str, class_name: str, id_: str) -> bool:
    """Whether an object is there, and refers to one that is not."""
    if not await exists(mediator, library, class_name, id_):
        return False
    author = await author_of(mediator, library, class_name, id_)
    key = next(
        iter(mediator.mediator.data.model.databases[library].classes[class_name].foreign_keys)
    )
    return author is not None and not await exists(mediator, library, key.to, author)


def delete(library: str, id_: str, class_name: str = "authors") -> Delete:
    return Delete(library, class_name, id_, unique())
