"""Referential actions: the consequences of a deletion for the objects that refer to it.

Searches along foreign keys find them, from the objects that a transaction deletes to those deleted
with them, and so on. Together they must not exceed the limit of writes of one transaction.

Constraints hold at the end of the transaction (NO ACTION in SQL): an object that is deleted as well
forbids nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import uuid4

import orjson

from mediator.base.concurrency import concurrently
from mediator.base.errors import StillReferenced
from mediator.model.operations import Delete, ReadModifyWrite, Update, WriteOperation
from mediator.routing.model import ClassRoute
from mediator.schema.foreign_keys import ForeignKey
from mediator.schema.tree import OnDelete
from mediator.transactions.model import MAX_WRITES

__all__ = ["Actions", "FindReferencing", "ObjectKey", "find_actions", "still_referenced"]

ObjectKey: TypeAlias = tuple[str, str]
"""Class and id."""

FindReferencing: TypeAlias = Callable[
    [str, ForeignKey, Sequence[str], int], Awaitable[Sequence[str]]
]
"""See `OperationPlane.find_referencing`."""

SAMPLE: Final = 5
"""Ids of objects in messages, per foreign key."""


@dataclass(slots=True)
class Actions:
    """The referential actions of a transaction.

    Attributes:
        deleted: All deleted objects, those that the transaction names first.
        nullified: The foreign keys, of objects that stay, which become null or lose elements of
            their list or set.
        forbidding: The objects that forbid the deletion, by their foreign key.
        rewritten: Objects that the transaction itself writes, and that refer to deleted ones
            unless it changes that, each with the foreign key.
    """

    deleted: dict[ObjectKey, None]
    nullified: dict[ObjectKey, dict[ForeignKey, None]] = field(default_factory=dict)
    forbidding: dict[ForeignKey, dict[str, None]] = field(default_factory=dict)
    rewritten: list[tuple[ForeignKey, str]] = field(default_factory=list)

    @property
    def written(self) -> list[ObjectKey]:
        return [*self.deleted, *self.nullified]

    def deleted_of(self, class_name: str) -> frozenset[str]:
        """Return the ids of the objects of a class that are deleted."""
        return frozenset(id_ for name, id_ in self.deleted if name == class_name)

    def require_allowed(self, other_count: int) -> None:
        """Check that they may happen, in a transaction that also writes `other_count` objects.

        Raises:
            StillReferenced: An object forbids it, or too many would be written.
        """
        if self.forbidding:
            raise still_referenced({key: [*ids] for key, ids in self.forbidding.items()})
        if other_count + len(self.written) > MAX_WRITES:
            raise StillReferenced(
                f"More than {MAX_WRITES} objects would be written with this transaction, because"
                " of foreign keys; nothing was done. Delete referring objects first, or fewer."
            )

    def operations(
        self, database: str, routes: Mapping[str, ClassRoute], named_keys: Iterable[ObjectKey]
    ) -> list[WriteOperation]:
        """Return the writes that the transaction needs besides those that it names."""
        own_keys = frozenset(named_keys)
        deletions = [
            Delete(database, class_name, id_, uuid4().hex)
            for class_name, id_ in self.deleted
            if (class_name, id_) not in own_keys
        ]
        updates = [
            self._update(database, routes[class_name], id_, keys)
            for (class_name, id_), keys in self.nullified.items()
        ]
        return [*deletions, *updates]

    def _update(
        self, database: str, route: ClassRoute, id_: str, keys: Iterable[ForeignKey]
    ) -> WriteOperation:
        head = (database, route.schema.name, id_, uuid4().hex)
        arrays = {key.field: self.deleted_of(key.to) for key in keys if key.is_array}
        nulls = dict.fromkeys(key.field for key in keys if not key.is_array)
        if not arrays:
            return Update(*head, values=route.codec.stamped(nulls))
        # Computed under the intents: an element may have been added since the search.
        return ReadModifyWrite(*head, compute=partial(_without, nulls, arrays))


async def find_actions(
    find: FindReferencing,
    database: str,
    routes: Mapping[str, ClassRoute],
    deleted: Sequence[ObjectKey],
    rewritten: frozenset[ObjectKey],
) -> Actions:
    """Follow the foreign keys from deleted objects.

    Args:
        find: Searches for referring objects.
        database: The database of all objects.
        routes: The routes of all reachable classes.
        deleted: The objects that the transaction deletes by name.
        rewritten: Other objects that it writes.

    Raises:
        StillReferenced: The actions exceed the limit of writes of one transaction.
        MediatorError: A search fails.
    """
    actions, level = Actions(dict.fromkeys(deleted)), list(deleted)
    while level:
        searches = list(_searches(level, routes))
        results = await concurrently(_search(find, database, *search) for search in searches)
        level = []
        for (key, _), referring_ids in zip(searches, results, strict=True):
            for id_ in referring_ids:
                referring = (key.class_name, id_)
                if referring in rewritten:
                    actions.rewritten.append((key, id_))
                elif key.on_delete is OnDelete.REFUSE:
                    actions.forbidding.setdefault(key, {})[id_] = None
                elif key.on_delete is OnDelete.NULLIFY:
                    actions.nullified.setdefault(referring, {})[key] = None
                elif referring not in actions.deleted:
                    actions.deleted[referring] = None
                    level.append(referring)
        if len(actions.written) > MAX_WRITES + len(actions.nullified.keys() & actions.deleted):
            (key, ids), referring_ids = _widest(searches, results)
            raise _too_many(database, key, ids[0], referring_ids)
    _leave_out_deleted(actions)
    return actions


def _without(
    nulls: Mapping[str, None], arrays: Mapping[str, Container[str]], document: dict[str, Any]
) -> dict[str, Any]:
    """Return an object with fields set to null, and ids removed from lists and sets."""
    remaining = {
        name: [id_ for id_ in document.get(name) or () if id_ not in removed_ids]
        for name, removed_ids in arrays.items()
    }
    return {**document, **nulls, **remaining}


def _searches(
    level: Iterable[ObjectKey], routes: Mapping[str, ClassRoute]
) -> Iterable[tuple[ForeignKey, list[str]]]:
    ids: dict[str, list[str]] = {}
    for class_name, id_ in level:
        ids.setdefault(class_name, []).append(id_)
    return chain.from_iterable(
        ((key, class_ids) for key in routes[class_name].referenced_by)
        for class_name, class_ids in ids.items()
    )


async def _search(
    find: FindReferencing, database: str, key: ForeignKey, ids: Sequence[str]
) -> Sequence[str]:
    # One more than can be written, to detect too many; at least one object found is then not
    # deleted itself.
    return await find(database, key, ids, MAX_WRITES + 1)


def _leave_out_deleted(actions: Actions) -> None:
    for referring in actions.nullified.keys() & actions.deleted.keys():
        del actions.nullified[referring]
    for key, ids in list(actions.forbidding.items()):
        remaining = {id_: None for id_ in ids if (key.class_name, id_) not in actions.deleted}
        actions.forbidding[key] = remaining
        if not remaining:
            del actions.forbidding[key]


def still_referenced(forbidding: Mapping[ForeignKey, Sequence[str]]) -> StillReferenced:
    """Return the error of a deletion that objects forbid, with a sample for each key."""
    causes = "; ".join(_describe(key, ids) for key, ids in forbidding.items())
    return StillReferenced(
        f"Other objects refer to those to be deleted: {causes}. Nothing was done.",
        extra={"references": [_document(key, ids) for key, ids in forbidding.items()]},
    )


def _document(key: ForeignKey, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "class": key.class_name,
        "field": key.field,
        "count": min(len(ids), MAX_WRITES),
        "more": len(ids) > MAX_WRITES,
        "sample": list(ids[:SAMPLE]),
    }


def _describe(key: ForeignKey, ids: Sequence[str]) -> str:
    count = f"more than {MAX_WRITES}" if len(ids) > MAX_WRITES else str(len(ids))
    sample = ", ".join(ids[:SAMPLE])
    return f"{key.class_name}.{key.field} of {count} objects, such as {sample}"


def _widest(
    searches: Sequence[tuple[ForeignKey, list[str]]], results: Sequence[Sequence[str]]
) -> tuple[tuple[ForeignKey, list[str]], Sequence[str]]:
    """Return the search that found the most objects to write, and these objects."""
    writing = [
        pair
        for pair in zip(searches, results, strict=True)
        if pair[0][0].on_delete is not OnDelete.REFUSE
    ]
    return max(writing, key=lambda pair: len(pair[1]))


def _too_many(
    database: str, key: ForeignKey, target: str, referring_ids: Sequence[str]
) -> StillReferenced:
    condition = f"{key.field}.contains" if key.is_array else key.field
    address = f"/v1/{database}/{key.class_name}?{condition}={quote(target, safe='')}"
    request = f"DELETE {address}"
    if key.on_delete is OnDelete.NULLIFY:
        change: Any = {"remove": target} if key.is_array else None
        request = f"PATCH {address} with {orjson.dumps({key.field: change}).decode()}"
    detail = (
        f"More than {MAX_WRITES} objects would be written with this deletion, because of"
        f" {key.class_name}.{key.field}. Nothing was done; write those first, by a condition:"
        f" {request}."
    )
    return StillReferenced(detail, extra={"references": [_document(key, referring_ids)]})
