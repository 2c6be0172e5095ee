"""Whether, and after which pause, a request is retried."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from portolan_client.calls import Call, Reply

__all__ = ["NO_ANSWER", "Attempts", "Retries", "pauses_s"]

_LOST: Final = (httpx.NetworkError, httpx.RemoteProtocolError)
"""The connection could not be made, or was lost before the reply was complete."""

NO_ANSWER: Final = (*_LOST, httpx.TimeoutException, httpx.ProxyError, httpx.DecodingError)
"""Errors without a reply; a time-out is the caller's bound, and is not retried."""

_KEY_IN_USE: Final = 409
"""With Retry-After: the service still works on the first request with the same key."""

_RETRYABLE: Final = frozenset({_KEY_IN_USE, 429, 503})
"""Statuses that, with Retry-After, permit the same request at a later time."""

_MIN_WAIT_S: Final = 1.0
"""The minimum that a wait for a key counts, so that repeated short waits end."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, and the pauses in between.

    Attributes:
        attempts: The maximum of requests, including the first one, except those that wait for a
            key. With one attempt nothing is retried.
        first_pause_s: The longest pause after the first lost connection; it doubles (seconds).
        max_pause_s: The longest pause; a service that asks for more gets no other attempt.
        key_in_use_s: How long in total a write whose connection was lost is retried while the
            service still works on its first attempt, for at most some 10 s (seconds).
    """

    attempts: int = 4
    first_pause_s: float = 0.1
    max_pause_s: float = 5.0
    key_in_use_s: float = 30.0


class Attempts:
    """The attempts of one call.

    Only a repeatable call has more than one: a read, or a write with an Idempotency-Key, under
    which the service applies it once and answers the next attempt with the recorded reply.
    """

    def __init__(self, call: Call[Any], retries: Retries) -> None:
        self._call = call
        count = retries.attempts if call.repeatable else 1
        self._max_pause_s = retries.max_pause_s
        self._spread_s = retries.first_pause_s
        self._pauses = pauses_s(count - 1, retries.first_pause_s, retries.max_pause_s)
        self._key_in_use_s = retries.key_in_use_s if count > 1 else 0.0

    def pause_after_failure(self, failure: Exception) -> float:
        """Return the pause before the next attempt (seconds); raises `Unreachable` after the last.

        Args:
            failure: Why there is no reply, one of `NO_ANSWER`.
        """
        pause = next(self._pauses, None) if isinstance(failure, _LOST) else None
        if pause is None:
            raise self._call.unreachable(failure) from failure
        return pause

    def pause_after(self, reply: Reply) -> float | None:
        """Return the pause before the next attempt (seconds); None: the reply is final."""
        seconds = reply.headers.get("retry-after", "")
        if reply.status not in _RETRYABLE or not (seconds.isascii() and seconds.isdigit()):
            return None
        if float(seconds) > self._max_pause_s:
            return None
        if reply.status == _KEY_IN_USE:
            return self._pause_for_key(float(seconds))
        spread = next(self._pauses, None)
        return None if spread is None else float(seconds) + spread

    def _pause_for_key(self, seconds: float) -> float | None:
        # By time, since the service may work on one request for longer than all attempts last.
        if self._key_in_use_s <= 0:
            return None
        self._key_in_use_s -= max(seconds, _MIN_WAIT_S)
        return seconds + self._spread_s * random.random()  # noqa: S311 - spreads retries


def pauses_s(count: int, first_s: float, max_s: float) -> Iterator[float]:
    """Yield pauses that double; each is random below its bound, so that clients spread."""
    bound = first_s
    for _ in range(count):
        yield bound * random.random()  # noqa: S311 - spreads retries
        bound = min(2 * bound, max_s)
