"""A change: one write to one cache group, as in the feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mediator.base.immutable import immutable

__all__ = ["Change", "change_id", "kind_of"]


def change_id(operation: str, group: str) -> str:
    return f"{operation}:{group}"


def kind_of(write: str, *, absent: bool) -> str:
    """Return the kind of a change: replacing an absent object creates it."""
    return "create" if absent and write == "replace" else write


@immutable
class Change:
    """One write to one cache group.

    Attributes:
        id: Unique and stable: `change_id` of the operation and the group.
        version: The version the group got by it.
        kind: ``create``, ``replace``, ``update`` or ``delete`` (`kind_of`).
        before: The touched fields that existed before, in their JSON form; None: the object did not
            exist.
        after: The touched fields that exist afterwards; None: the object does not exist.
        time_us: The store's time, in microseconds since 1970.
        database_id: Id of the database, never reused.
    """

    id: str
    database: str
    class_name: str
    object_id: str
    group: str
    version: int
    kind: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    time_us: int
    database_id: str
