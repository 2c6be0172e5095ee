"""Transaction coordinators that stop at any step, as if their process were killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.service import Mediator

__all__ = ["CRASH_POINT", "CrashPoint", "Killed", "make_crashable"]

LOG = ("begin", "commit", "finish", "remove", "abort", "postpone", "find", "find_open", "refuse")
INTENTS = ("unlock", "record_states")
STORE = ("lock", "reserve", "write", "fence")


class Killed(BaseException):
    """The process was killed; none of its code runs any more."""


@dataclass
class CrashPoint:
    """The point at which a coordinator is killed.

    Attributes:
        step: The number of the step; beyond the last one it survives.
        after: Whether the step is still carried out.
        taken: The steps taken so far.
    """

    step: int
    after: bool
    taken: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the coordinator was killed."""
        return len(self.taken) > self.step

    async def run_step(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step, or raise `Killed`."""
        remaining = self.step - len(self.taken)
        if remaining < 0:
            raise Killed
        self.taken.append(name)
        if remaining > 0:
            return await send()
        if self.after:
            await send()
        raise Killed


CRASH_POINT: ContextVar[CrashPoint | None] = ContextVar("crash_point", default=None)
"""The crash point of the coordinator in this context; None: it does not crash."""


def make_crashable(mediator: Mediator, patched: pytest.MonkeyPatch) -> None:
    """Check the crash point at every call that leaves the process."""
    transactions = mediator.transactions
    _wrap(patched, transactions.log, LOG)
    _wrap(patched, transactions.resolver.intents, INTENTS)
    for guarded in mediator.systems:
        _wrap(patched, guarded.store, STORE)


def _wrap(patched: pytest.MonkeyPatch, owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        patched.setattr(owner, name, _crashable(name, getattr(owner, name)))


def _crashable(name: str, send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def step(*args: Any, **more: Any) -> Any:
        crash = CRASH_POINT.get()
        if crash is None:
            return await send(*args, **more)
        return await crash.run_step(name, lambda: send(*args, **more))

    return step
