"""Time that passes only while a task waits, or when a test advances it: nothing really sleeps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from mediator.base.clock import Clock

__all__ = ["HandClock", "LoopClock", "run_virtually"]

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0


class HandClock:
    """A clock that a test advances; each reading takes `step_s`."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.elapsed_s = 0.0
        self._step_s = step_s

    def now(self) -> float:
        return EPOCH_S + self.monotonic()

    def monotonic(self) -> float:
        self.elapsed_s += self._step_s
        return self.elapsed_s


class _LeapingSelector(selectors.SelectSelector):
    """Waits by advancing the time of its loop."""

    elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if timeout is None:
            raise RuntimeError("every task waits for another")
        if not ready:
            self.elapsed_s += max(timeout, 0.0)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaping_selector = _LeapingSelector()
        super().__init__(self._leaping_selector)

    def time(self) -> float:
        return self._leaping_selector.elapsed_s


class LoopClock:
    """The time of the running loop."""

    def now(self) -> float:
        return EPOCH_S + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a new loop, in which waiting takes no time."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(coroutine)


_: Clock = HandClock()
