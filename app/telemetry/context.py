"""What a request is a part of: the trace under way, which the log and outgoing calls name."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from opentelemetry.trace import SpanContext

from mediator.observation import StoreCallFinished

__all__ = ["Trace", "under_way"]


@dataclass(slots=True)
class Trace:
    """A piece of work that is traced: what is done within its block.

    Attributes:
        span: Our span, whether it is sampled or not.
        parent: The caller's span, if it told of one.
        began_ns: When it began, since the epoch.
        calls: Store calls within it, with the times at which they ended.
        left_out: Store calls beyond those that are kept.
        over: Whether it has ended: what goes on in the background is no part of it.
    """

    span: SpanContext
    parent: SpanContext | None
    began_ns: int
    calls: list[tuple[StoreCallFinished, int]] = field(default_factory=list)
    left_out: int = 0
    over: bool = False
    _token: Token[Trace | None] | None = None

    def __enter__(self) -> None:
        self._token = under_way.set(self)

    def __exit__(self, *_: object) -> None:
        self.over = True
        if self._token is not None:
            under_way.reset(self._token)


under_way: ContextVar[Trace | None] = ContextVar("portolan_trace", default=None)
"""The trace that the running task is part of; tasks that it starts inherit it."""
