"""Transactions: reads, and the writes to execute if all reads are unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from portolan_client.calls import Call
from portolan_client.encoding import Freshness, field_names
from portolan_client.objects import Read, get
from portolan_client.operations import Absent, Operation, Result, commit
from portolan_client.problems import NotFound

__all__ = ["FIRST_PAUSE_S", "MAX_PAUSE_S", "Transaction"]

FIRST_PAUSE_S = 0.01
MAX_PAUSE_S = 0.4
"""Pauses between attempts, in which other transactions on the same objects can end (seconds)."""

_Key: TypeAlias = tuple[str, str, tuple[str, ...] | None]


class Transaction:
    """One attempt: it reads each resource once, and collects the writes.

    It does not see its own writes: read first.

    Args:
        is_repeated: Whether an earlier attempt was aborted.
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

        A copy in a cache or a materialised view may have caused the last abort, so a repeated
        attempt bypasses them.
        """
        if not self._is_repeated:
            return get(class_name, id_, fields=fields)
        call = get(class_name, id_, fields=fields, freshness=Freshness("strong"))
        return replace(call, headers={**call.headers, "Cache-Control": "no-cache"})

    def recall(self, class_name: str, id_: str, fields: Iterable[str] | None) -> Read | None:
        """Return an earlier read, or None; raises the `NotFound` of an absent object."""
        outcome = self._reads.get((class_name, id_, field_names(fields)))
        if isinstance(outcome, NotFound):
            raise outcome
        return outcome

    def record(
        self, class_name: str, id_: str, fields: Iterable[str] | None, outcome: Read | NotFound
    ) -> None:
        """Make the commit depend on a read: absence is validated like a version."""
        self._reads[class_name, id_, field_names(fields)] = outcome

    def commit(self) -> Call[list[Result]]:
        reads = [
            Absent(class_name, id_) if isinstance(outcome, NotFound) else outcome
            for (class_name, id_, _), outcome in self._reads.items()
        ]
        return commit(self._operations, reads)
