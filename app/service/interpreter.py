"""Interpreter settings of serving processes: garbage collector and threads."""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["favour_the_event_loop", "spare_the_collector"]

_SWITCH_INTERVAL_S: Final = 0.00005
"""A computing thread yields to the event loop within this time instead of 5 ms: a request takes
several iterations of the event loop, each of which would wait that long."""


def spare_the_collector() -> None:
    """Exclude the objects of start-up from garbage collections, and collect less often.

    Neither requests nor relays create reference cycles. A batch of a thousand operations, or as
    many entries of an outbox, create thousands of objects, which would trigger many collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def favour_the_event_loop() -> None:
    """Let the event loop preempt computing threads quickly (`mediator.base.offload`)."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
