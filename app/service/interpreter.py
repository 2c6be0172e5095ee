"""Settings of the interpreter in processes that serve: garbage collector and threads."""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["favour_the_event_loop", "spare_the_collector"]

_SWITCH_S: Final = 0.00005
"""A thread that computes gives way to the event loop within this time, instead of 5 ms: a request
takes the event loop several rounds, and each would wait as long."""


def spare_the_collector() -> None:
    """Keep what start-up made out of garbage collections, and have fewer of them.

    Requests make no cycles, nor do relays; a batch of a thousand operations, or as many entries of
    an outbox, make thousands of objects, and would set off a collection again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def favour_the_event_loop() -> None:
    """Let the event loop go on soon where threads compute (`mediator.base.offload`)."""
    sys.setswitchinterval(_SWITCH_S)
