"""Coordinators of transactions that die at any step, as if their process were killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.service import Mediator

__all__ = ["FATE", "Fate", "Killed", "make_mortal"]

LOG = ("begin", "commit", "finish", "remove", "abort", "postpone", "find", "refuse")
MARKER = ("lock_each", "unlock", "record_states")


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@dataclass
class Fate:
    """When a coordinator dies.

    Attributes:
        step: At which of its steps; beyond the last one it lives.
        after: Whether the step is still carried out.
        taken: The steps taken so far.
    """

    step: int
    after: bool
    taken: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it has died."""
        return len(self.taken) > self.step

    async def meet(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Take a step, or die."""
        left = self.step - len(self.taken)
        if left < 0:
            raise Killed
        self.taken.append(name)
        if left > 0:
            return await send()
        if self.after:
            await send()
        raise Killed


FATE: ContextVar[Fate | None] = ContextVar("fate", default=None)
"""The fate of whoever runs in this context; None: an immortal."""


def make_mortal(mediator: Mediator, patched: pytest.MonkeyPatch) -> None:
    """Let those who have a fate meet it, at every call that leaves the process."""
    transactions = mediator.transactions
    _wrap(patched, transactions.log, LOG)
    _wrap(patched, transactions.resolver.intents, MARKER)
    for guarded in mediator.systems:
        _wrap(patched, guarded.store, ("write",))


def _wrap(patched: pytest.MonkeyPatch, owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        patched.setattr(owner, name, _mortal(name, getattr(owner, name)))


def _mortal(name: str, send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def step(*args: Any, **more: Any) -> Any:
        fate = FATE.get()
        if fate is None:
            return await send(*args, **more)
        return await fate.meet(name, lambda: send(*args, **more))

    return step
