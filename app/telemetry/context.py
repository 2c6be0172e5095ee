"""What a request is a part of: the trace under way, which the log and outgoing calls name."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from time import time_ns
from typing import Final

from app.telemetry.spans import Call, Location, Request
from app.telemetry.stores import error_type
from mediator.base.observation import RequestFinished, StoreCallFinished

__all__ = ["MOST_CALLS", "Trace", "under_way"]

MOST_CALLS: Final = 128
"""Store calls of a request that get spans of their own; a batch may make thousands."""


@dataclass(slots=True)
class Trace:
    """A piece of work that is traced: what is done within its block.

    Attributes:
        high: The upper half of the trace's id.
        low: The lower half.
        span_id: Id of our span, whether it is sampled or not.
        sampled: Whether it is.
        state: As the caller told it (W3C Trace Context); empty: not at all.
        parent_id: Id of the span that ours is within; 0: of none.
        parent_is_remote: Whether that is the caller's.
        began_ns: When it began, since the epoch.
        ended_ns: When it ended; 0: it has not yet. What goes on after that is no part of it.
    """

    high: int
    low: int
    span_id: int
    sampled: bool
    state: str
    parent_id: int
    parent_is_remote: bool
    began_ns: int
    ended_ns: int = 0
    _calls: list[tuple[int, str, StoreCallFinished]] = field(default_factory=list)
    _left_out: int = 0
    _answered: RequestFinished | None = None
    _token: Token[Trace | None] | None = None

    @property
    def trace_hex(self) -> str:
        """The trace's id as others write it."""
        return f"{self.high:016x}{self.low:016x}"

    @property
    def span_hex(self) -> str:
        """Our span's id as others write it."""
        return f"{self.span_id:016x}"

    def note(self, kind: str, told: StoreCallFinished) -> None:
        """Keep what is told of a store call that ends now, on a system of some kind."""
        if len(self._calls) < MOST_CALLS:
            self._calls.append((time_ns(), kind, told))
        else:
            self._left_out += 1

    def end(self, told: RequestFinished) -> None:
        """Keep what is told of the request, which ends now."""
        self.ended_ns = time_ns()
        self._answered = told

    def place(self) -> Location:
        """Return where and when it was."""
        return (
            self.high,
            self.low,
            self.state,
            self.span_id,
            self.parent_id,
            self.parent_is_remote,
            self.began_ns,
            self.ended_ns,
        )

    def plain(self) -> Request:
        """Return the request that it was as plain values."""
        told = self._answered
        assert told is not None
        what = (told.method, told.route, told.status, told.scheme, self._left_out)
        return self.place(), what, [_plain(*call) for call in self._calls]

    def __enter__(self) -> None:
        self._token = under_way.set(self)

    def __exit__(self, *_: object) -> None:
        self.ended_ns = time_ns()
        if self._token is not None:
            under_way.reset(self._token)


def _plain(ended_ns: int, kind: str, told: StoreCallFinished) -> Call:
    return (
        ended_ns,
        told.seconds,
        kind,
        told.system,
        told.database,
        told.class_name,
        told.operation,
        told.count,
        error_type(told),
    )


under_way: ContextVar[Trace | None] = ContextVar("portolan_trace", default=None)
"""The trace that the running task is part of; tasks that it starts inherit it."""
