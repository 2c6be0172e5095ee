"""Holding one write at a call that leaves the process, while others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.model.operations import WriteOperation
from tests.process.service import Service
from tests.process.transactions.foreign_keys.library import error_of

__all__ = ["Stall", "called", "stalled"]

_STALL: ContextVar[Stall | None] = ContextVar("stall", default=None)


@dataclass
class Stall:
    """A write that was stopped at a call, once."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()


@asynccontextmanager
async def stalled(
    on: Service, operation: WriteOperation, owner: Any, name: str
) -> AsyncIterator[tuple[Stall, asyncio.Task[Any]]]:
    """Start a write that stops before its first call of a method; yields the write.

    Its result is the error with which it was refused, or None. It goes on at the end at last.
    """
    stall = Stall()

    async def write() -> Any:
        _STALL.set(stall)
        return await error_of(on, operation)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, _stallable(getattr(owner, name)))
        task = asyncio.create_task(write())
        await stall.reached.wait()
        try:
            yield stall, task
        finally:
            stall.go_on.set()
            await task


def _stallable(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def stopping(*args: Any, **more: Any) -> Any:
        if (stall := _STALL.get()) is not None:
            await stall.wait()
        return await call(*args, **more)

    return stopping


async def called(owner: Any, name: str, task: asyncio.Task[Any], times: int = 1) -> None:
    """Wait until a method is called so often, or a write has ended."""
    enough, count = asyncio.Event(), 0
    call = getattr(owner, name)

    async def counting(*args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count >= times:
            enough.set()
        return await call(*args, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, counting)
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
