"""Tickets of messages: 32 hexadecimal digits, of which the first ones are those of the request."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mediator.stores.port import REPEATABLE_S

__all__ = ["tickets_like", "tickets_of"]

_STEM_DIGITS: Final = 24


def tickets_of(seed: str, now_s: float, count: int) -> list[str]:
    """Return the tickets of a request: others when its Idempotency-Key has expired.

    Stores would take writes under former tickets for those that they know. If the queue has lost
    the key a moment ago, they are to: the request has most likely the same tickets then.

    Args:
        seed: What only this request has, and the same one when it comes again.
        now_s: The time (s since the epoch).
        count: Of its messages.
    """
    # Shorter than keys are known, as the clocks of replicas and of the queue differ.
    period = int(now_s // REPEATABLE_S)
    stem = blake2b(f"{seed}:{period}".encode(), digest_size=_STEM_DIGITS // 2).hexdigest()
    return tickets_like(stem, count)


def tickets_like(ticket: str, count: int) -> list[str]:
    """Return the tickets of a request that has this one."""
    return [f"{ticket[:_STEM_DIGITS]}{index:08x}" for index in range(count)]
