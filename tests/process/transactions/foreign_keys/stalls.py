"""Stalling one write at a call that leaves the process, while others continue."""

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

__all__ = ["Stall", "stall_at", "wait_for_calls"]

_STALL: ContextVar[Stall | None] = ContextVar("stall", default=None)


@dataclass
class Stall:
    """A write that stalls at a call, once."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.resume.wait()


@asynccontextmanager
async def stall_at(
    replica: Service, operation: WriteOperation, owner: Any, name: str
) -> AsyncIterator[tuple[Stall, asyncio.Task[Any]]]:
    """Start a write that stalls before its first call of a method; yield the stall and the task.

    The task's result is the error of a refusal, or None. At the end the write resumes in any case.
    """
    stall = Stall()

    async def write() -> Any:
        _STALL.set(stall)
        return await error_of(replica, operation)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, _stallable(getattr(owner, name)))
        task = asyncio.create_task(write())
        await stall.reached.wait()
        try:
            yield stall, task
        finally:
            stall.resume.set()
            await task


def _stallable(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def wait_then_call(*args: Any, **more: Any) -> Any:
        if (stall := _STALL.get()) is not None:
            await stall.wait()
        return await call(*args, **more)

    return wait_then_call


async def wait_for_calls(owner: Any, name: str, task: asyncio.Task[Any], times: int = 1) -> None:
    """Wait until a method has been called `times` times, or a write has ended."""
    enough, count = asyncio.Event(), 0
    call = getattr(owner, name)

    async def count_call(*args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count >= times:
            enough.set()
        return await call(*args, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, count_call)
        waiter = asyncio.create_task(enough.wait())
        await asyncio.wait([waiter, task], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
