"""Transactions as clients send them: the read set and the write set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mediator.base.errors import Invalid, Location
from mediator.base.immutable import immutable
from mediator.model.operations import WriteOperation
from mediator.operations.intents import ForeignIntents

__all__ = ["MAX_READS", "MAX_WRITES", "CommitRequest", "ReadSetEntry", "WriteBlocked", "check"]

MAX_READS: Final = 1_000
"""Limit of resources in the read set of one transaction."""

MAX_WRITES: Final = 100
"""Limit of objects that one transaction writes."""


class WriteBlocked(Exception):
    """Another write holds an object; nothing has happened, and a retry may succeed."""

    def __init__(self, foreign_intents: ForeignIntents | None = None) -> None:
        super().__init__()
        self.foreign_intents = foreign_intents or {}


@immutable
class ReadSetEntry:
    """One entry of the read set: a resource as the client read it.

    Attributes:
        versions: The version of every group of the resource, None if the group was absent;
            None instead of the mapping: the object did not exist.
        schema_version: Version of the class's schema that the values belong to; None: any.
    """

    class_name: str
    id: str
    versions: Mapping[str, int | None] | None
    schema_version: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Writes that happen only if the read set is unchanged.

    Attributes:
        operation: Its unique id; a retry under an Idempotency-Key carries the same one.
        writes: At most one operation per object.
        fingerprint: Set when the client gave an Idempotency-Key: then the answer is remembered.
    """

    database: str
    operation: str
    reads: tuple[ReadSetEntry, ...]
    writes: tuple[WriteOperation, ...]
    fingerprint: str | None = None


def check(transaction: CommitRequest) -> None:
    """Raise `Invalid` for a transaction that is too large, or writes an object twice."""
    locations = []
    if len(transaction.reads) > MAX_READS:
        locations.append(Location("/reads", f"at most {MAX_READS} are allowed"))
    if len(transaction.writes) > MAX_WRITES:
        locations.append(Location("/operations", f"at most {MAX_WRITES} are allowed"))
    written: set[tuple[str, str]] = set()
    for index, write in enumerate(transaction.writes):
        if (write.class_name, write.id) in written:
            locations.append(
                Location(f"/operations/{index}", "the object is written before already")
            )
        written.add((write.class_name, write.id))
    if locations:
        raise Invalid("The transaction is malformed.", locations=locations)
