"""The work in one step of the event loop, counted in function calls and never timed."""

from __future__ import annotations

import gc
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

__all__ = ["Steps", "count_steps"]

_STEP: Final = Handle._run.__code__  # noqa: SLF001  # what the event loop calls


@dataclass(slots=True)
class Steps:
    """The counts.

    Attributes:
        steps: How many callbacks the event loop ran.
        max_calls: Most calls in one step.
    """

    steps: int = 0
    max_calls: int = 0
    _calls: int = 0

    def count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is _STEP:
            self.steps += 1
            self._calls = 0
        elif event in ("call", "c_call"):
            self._calls += 1
            self.max_calls = max(self.max_calls, self._calls)


@contextmanager
def count_steps() -> Iterator[Steps]:
    """Count the work of this thread; other threads do not block the event loop.

    Garbage collection is off meanwhile: it could finalise objects of other code.
    """
    steps = Steps()
    gc.disable()
    sys.setprofile(steps.count)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        gc.enable()
