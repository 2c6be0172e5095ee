"""What a request is a part of: the trace under way, which the log and outgoing calls name."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from app.telemetry.spans import Call

__all__ = ["Trace", "under_way"]


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
        calls: Store calls within it.
        left_out: Store calls beyond those that are kept.
        over: Whether it has ended: what goes on in the background is no part of it.
    """

    high: int
    low: int
    span_id: int
    sampled: bool
    state: str
    parent_id: int
    parent_is_remote: bool
    began_ns: int
    calls: list[Call] = field(default_factory=list)
    left_out: int = 0
    over: bool = False
    _token: Token[Trace | None] | None = None

    @property
    def trace_hex(self) -> str:
        """The trace's id as others write it."""
        return f"{self.high:016x}{self.low:016x}"

    @property
    def span_hex(self) -> str:
        """Our span's id as others write it."""
        return f"{self.span_id:016x}"

    def __enter__(self) -> None:
        self._token = under_way.set(self)

    def __exit__(self, *_: object) -> None:
        self.over = True
        if self._token is not None:
            under_way.reset(self._token)


under_way: ContextVar[Trace | None] = ContextVar("portolan_trace", default=None)
"""The trace that the running task is part of; tasks that it starts inherit it."""
