"""Maps the driver's errors to the port's; no message contains a URL or a user's value."""

from __future__ import annotations

import asyncpg

from mediator.stores.port import StoreError, StoreRefused, StoreTimeout, StoreUnavailable

__all__ = ["FAILURES", "NUMERIC_OVERFLOW", "TRANSIENT", "as_store_error"]

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    ValueError,
    TypeError,
)
"""Errors that asyncpg raises; ValueError and TypeError for URLs and values it cannot send."""

TRANSIENT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server rolled the statement back because of concurrent ones: a retry is safe."""

NUMERIC_OVERFLOW = asyncpg.NumericValueOutOfRangeError

_UNAVAILABLE = ("08", "57P", "53300", "3D000", "40003")
_TIMEOUTS = ("57014", "55P03")
_WITHOUT_VALUES = ("28", "42", "53", "57", "58")
"""Classes whose messages contain names and resources, never values."""


def as_store_error(system: str, error: Exception, *, writes: bool = False) -> StoreError:
    """Return the port's error for an error of asyncpg (or asyncio's TimeoutError).

    `writes`: a write failed on an open connection. If the connection broke, the write may have been
    sent and committed.
    """
    if isinstance(error, StoreError):
        return error
    failure = _failure(system, error)
    if writes and isinstance(failure, StoreUnavailable):
        return StoreTimeout(f"{failure}; the write may or may not have taken effect")
    return failure


def _failure(system: str, error: Exception) -> StoreError:
    if isinstance(error, TimeoutError):
        return StoreTimeout(f"{system}: the deadline passed")
    if isinstance(error, asyncpg.PostgresError):
        return _from_state(system, error)
    if isinstance(error, OSError):
        return StoreUnavailable(f"{system}: {error.strerror or 'the connection failed'}")
    # A server that dies in the middle of an error leaves a connection that only looks open.
    if isinstance(error, asyncpg.InternalClientError):
        return StoreUnavailable(f"{system}: the connection is broken")
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return StoreUnavailable(f"{system}: the connection is closed")
    # The texts of these errors quote the refused value, or the URL with its password.
    return StoreRefused(f"{system}: cannot be sent to PostgreSQL ({type(error).__name__})")


def _from_state(system: str, error: asyncpg.PostgresError) -> StoreError:
    state = str(error.sqlstate)
    text = f"{system}: {type(error).__name__} ({state})"
    if state.startswith(_WITHOUT_VALUES):
        text = f"{text}: {str(error.args[0])[:200]}"
    if state.startswith(_TIMEOUTS):
        return StoreTimeout(text)
    # asyncpg raises a connection error without a state when the server goes away.
    if state.startswith(_UNAVAILABLE) or isinstance(error, asyncpg.PostgresConnectionError):
        return StoreUnavailable(text)
    return StoreRefused(text)
