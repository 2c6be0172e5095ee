"""How much is done in one step of the event loop: counted in calls of functions, never timed."""

from __future__ import annotations

import gc
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

__all__ = ["Steps", "counted"]

_STEP: Final = Handle._run.__code__  # noqa: SLF001  # what the event loop calls


@dataclass(slots=True)
class Steps:
    """What was counted.

    Attributes:
        steps: How often the event loop ran something.
        longest: Calls in the step that had most of them.
    """

    steps: int = 0
    longest: int = 0
    _calls: int = 0

    def count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is _STEP:
            self.steps += 1
            self._calls = 0
        elif event in ("call", "c_call"):
            self._calls += 1
            self.longest = max(self.longest, self._calls)


@contextmanager
def counted() -> Iterator[Steps]:
    """Count what this thread does; other threads do not hold the event loop.

    Nothing is collected meanwhile: what that finalises may be of anybody.
    """
    steps = Steps()
    gc.disable()
    sys.setprofile(steps.count)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        gc.enable()
