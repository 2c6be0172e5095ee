"""Batches of writes, each applied by one call of a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mediator.stores.port import StoreRefused, Write, WriteResult
from mediator.stores.redis.layout import Layout, LayoutOf
from mediator.stores.redis.write.prepared import PreparedWrite, call_head, prepare
from mediator.stores.redis.write.results import results_of
from redis_connection.commands import arguments

__all__ = ["MAX_WRITES", "Batch", "batches_of"]

MAX_WRITES: Final = 200
"""Maximum number of writes of one script, so that it does not block the server for long."""

_MAX_ARGUMENTS: Final = 1_000_000
"""A Redis server closes the connection on a command of more than 1,048,576 arguments."""


class Batch:
    """Writes to one partition that share a prepared write.

    Attributes:
        positions: The position of each among the writes of the call.
        rows: Their rows, one after the other.
    """

    __slots__ = ("layout", "partition", "positions", "prepared", "rows")

    def __init__(self, layout: Layout, partition: int, prepared: PreparedWrite) -> None:
        self.layout = layout
        self.partition = partition
        self.prepared = prepared
        self.positions: list[int] = []
        self.rows: list[Any] = []

    def command(self) -> bytes:
        prepared, rows = self.prepared, self.rows
        count, head = call_head(self.layout, self.partition, prepared.script)
        count += prepared.size + len(rows)
        if count > _MAX_ARGUMENTS:
            raise StoreRefused("the write has more members than one command of Redis can carry")
        return b"".join((b"*%d\r\n" % count, head, prepared.shape, arguments(*rows)))

    def results(self, reply: list[Any]) -> list[WriteResult]:
        """Return the results in the reply, in the order of `rows`."""
        return results_of(self.layout, self.prepared, reply)


def batches_of(layout_of: LayoutOf, calls: Sequence[Write], token: str) -> list[Batch]:
    """Divide writes into batches; writes to one record keep their order."""
    batches: list[Batch] = []
    latest: dict[tuple[Layout, int], Batch] = {}
    for position, call in enumerate(calls):
        layout = layout_of(call.fragment)
        prepared = prepare(layout, call, has_token=bool(token))
        partition = layout.partition(call.id)
        # Only the latest batch of a partition takes more: an earlier one would reorder writes.
        batch = latest.get((layout, partition))
        if batch is None or batch.prepared is not prepared or len(batch.positions) >= MAX_WRITES:
            batch = latest[layout, partition] = Batch(layout, partition, prepared)
            batches.append(batch)
        batch.positions.append(position)
        prepared.add(batch.rows, call, token)
    return batches
