"""How the garbage collector is set in processes that make many objects and hardly a cycle."""

from __future__ import annotations

import gc

__all__ = ["spare_the_collector"]


def spare_the_collector() -> None:
    """Keep what start-up made out of garbage collections, and have fewer of them.

    Requests make no cycles, nor do relays; a batch of a thousand operations, or as many entries of
    an outbox, make thousands of objects, and would set off a collection again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
