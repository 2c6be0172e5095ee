"""Waiting for a condition, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_for"]

T = TypeVar("T")

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def wait_for(condition: Callable[[], T | None], within_s: float) -> T | None:
    """Ask again and again until the answer is truthy.

    Args:
        condition: What to ask; it may raise to end the wait at once.
        within_s: How long to go on asking, in seconds.

    Returns:
        The first truthy answer, or None when time ran out.
    """
    deadline = time.monotonic() + within_s
    pause = _FIRST_PAUSE_S
    while True:
        if answer := condition():
            return answer
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
