"""Tickets of messages: 32 hexadecimal digits, the first of which identify the request."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mediator.stores.port import REPEATABLE_S

__all__ = ["tickets_like", "tickets_of"]

_STEM_DIGITS: Final = 24


def tickets_of(seed: str, now_s: float, count: int) -> list[str]:
    """Return the tickets of a request; they change once its Idempotency-Key has expired.

    Stores would take writes under former tickets for repetitions. If the queue has just lost the
    key, this is intended: the request then most likely has the same tickets.

    Args:
        seed: Unique to this request, but equal when it is repeated.
        now_s: The time (s since the epoch).
        count: The number of its messages.
    """
    # Shorter than keys are remembered, as the clocks of replicas and of the queue differ.
    period = int(now_s // REPEATABLE_S)
    stem = blake2b(f"{seed}:{period}".encode(), digest_size=_STEM_DIGITS // 2).hexdigest()
    return tickets_like(stem, count)


def tickets_like(ticket: str, count: int) -> list[str]:
    """Return all tickets of the request with this ticket."""
    return [f"{ticket[:_STEM_DIGITS]}{index:08x}" for index in range(count)]
