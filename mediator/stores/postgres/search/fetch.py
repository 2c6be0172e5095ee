"""Fetching the rows of a search: at once, or in steps where they may be large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from mediator.stores.postgres.connection import transaction

__all__ = ["STEP", "Fetch"]

STEP: Final = 101
"""Rows that are received at once where they may be large: a page of the default limit, and one."""

_ITEM: Final = 8


class Fetch(NamedTuple):
    """What is fetched.

    Attributes:
        text: The statement.
        arguments: Its parameters.
        limit: How many rows it may return.
        most_bytes: No more rows are fetched once these have so many bytes; None: all are.
    """

    text: str
    arguments: list[Any]
    limit: int = 0
    most_bytes: int | None = None

    @property
    def has_steps(self) -> bool:
        """Whether rows are fetched in steps."""
        return self.most_bytes is not None and self.limit > STEP

    async def run(self, connection: Any, timeout_s: float) -> tuple[list[Any], bool]:
        """Return the rows, and whether there are more of them, which were not fetched."""
        if self.most_bytes is None or not self.has_steps:
            return await connection.fetch(self.text, *self.arguments, timeout=timeout_s), False
        rows: list[Any] = []
        size = 0
        # One snapshot, which a statement for each step would not be.
        async with transaction(connection):
            cursor = await connection.cursor(self.text, *self.arguments, timeout=timeout_s)
            while size <= self.most_bytes:
                some = await cursor.fetch(STEP, timeout=timeout_s)
                rows += some
                if len(some) < STEP or len(rows) >= self.limit:
                    return rows, False
                size += _size(some)
        return rows, True


def _size(rows: Iterable[Any]) -> int:
    size = 0
    for row in rows:
        for value in row:
            kind = type(value)
            if kind is str or kind is bytes:
                size += len(value)
            elif kind is list:
                size += sum(len(v) if isinstance(v, str | bytes) else _ITEM for v in value)
    return size
