"""Ended messages, as `scripts/flow_results.lua` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from mediator.flows.queue import End, EndedMessage
from mediator.model.result_position import ResultPosition

__all__ = ["EndedRow", "ended_rows"]


class EndedRow(NamedTuple):
    """An ended message. Its document is empty if no longer kept."""

    number: bytes
    digest: bytes
    ticket: bytes
    end: bytes
    document: bytes

    @property
    def position(self) -> ResultPosition:
        """The position after it."""
        return ResultPosition(int(self.number), self.digest.decode())

    @property
    def content(self) -> bytes:
        """The content that its digest covers, besides the previous digest."""
        return b"%b %b" % (self.ticket, self.end)

    def message(self) -> EndedMessage:
        """Return the message; only if it has a document."""
        document = orjson.loads(self.document)
        return EndedMessage(self.position, self.ticket.decode(), End(self.end.decode()), document)


def ended_rows(reply: Sequence[bytes]) -> list[EndedRow]:
    size = len(EndedRow._fields)
    return [EndedRow(*reply[i : i + size]) for i in range(0, len(reply), size)]
