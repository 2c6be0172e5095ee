"""Polls a condition for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_for"]

T = TypeVar("T")

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def wait_for(condition: Callable[[], T | None], within_s: float) -> T | None:
    """Poll a condition until it returns something truthy.

    Args:
        condition: The condition; it may raise to end the wait at once.
        within_s: How long to poll, in seconds.

    Returns:
        Its first truthy result, or None when the time is up.
    """
    deadline = time.monotonic() + within_s
    pause = _FIRST_PAUSE_S
    while True:
        if result := condition():
            return result
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
