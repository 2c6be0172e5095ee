"""Transactions: what was read, and what is written if all of it is unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from portolan_client.calls import Call
from portolan_client.encoding import Freshness, field_names
from portolan_client.objects import Read, get
from portolan_client.operations import Absent, Operation, Result, commit
from portolan_client.problems import NotFound

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "Transaction"]

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.4
"""Pauses between attempts, which others' transactions on the same objects need to end (seconds)."""

_Key: TypeAlias = tuple[str, str, tuple[str, ...] | None]


class Transaction:
    """One attempt: it reads each resource once, and collects the writes.

    It does not read what it has written: read first.

    Args:
        is_repeated: Whether an attempt before was aborted.
    """

    def __init__(self, *, is_repeated: bool = False) -> None:
        self._is_repeated = is_repeated
        self._reads: dict[_Key, Read | NotFound] = {}
        self._operations: list[Operation] = []

    def add(self, *operations: Operation) -> None:
        """Add writes, which take effect together at the end; each object at most once."""
        self._operations += operations

    def read(self, class_name: str, id_: str, fields: Iterable[str] | None) -> Call[Read]:
        """Return the call that reads an object.

        What a cache or a materialised view holds may be what the attempt before was aborted for,
        so a repeated one passes all of them by.
        """
        if not self._is_repeated:
            return get(class_name, id_, fields=fields)
        call = get(class_name, id_, fields=fields, freshness=Freshness("strong"))
        return replace(call, headers={**call.headers, "Cache-Control": "no-cache"})

    def recall(self, class_name: str, id_: str, fields: Iterable[str] | None) -> Read | None:
        """Return what was read before, or None; raises the `NotFound` of an absent object."""
        seen = self._reads.get((class_name, id_, field_names(fields)))
        if isinstance(seen, NotFound):
            raise seen
        return seen

    def record(
        self, class_name: str, id_: str, fields: Iterable[str] | None, seen: Read | NotFound
    ) -> None:
        """Let the commit depend on a read: absence is validated like a version."""
        self._reads[class_name, id_, field_names(fields)] = seen

    def commit(self) -> Call[list[Result]]:
        reads = [
            Absent(class_name, id_) if isinstance(seen, NotFound) else seen
            for (class_name, id_, _), seen in self._reads.items()
        ]
        return commit(self._operations, reads)
