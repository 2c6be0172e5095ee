"""Maps the driver's errors to the port's; no message contains a value or a URL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

import orjson
from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidName,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from mediator.stores.port import StoreError, StoreRefused, StoreTimeout, StoreUnavailable

__all__ = ["DUPLICATE_KEY", "as_store_error", "guarded"]

DUPLICATE_KEY: Final = 11000

_TIMEOUTS: Final = (NetworkTimeout, ExecutionTimeout, WTimeoutError, TimeoutError)
_UNSTORABLE: Final = (
    BSONError,
    UnicodeError,
    ArithmeticError,
    RecursionError,
    orjson.JSONEncodeError,
)

_T = TypeVar("_T")


async def guarded(
    system: str, deadline_s: float, work: Awaitable[_T], *, writes: bool = False
) -> _T:
    """Await work within a deadline (seconds); raise its failures as `StoreError`.

    `writes`: the work has a connection and writes; see `as_store_error`.
    """
    try:
        async with asyncio.timeout(deadline_s):
            return await work
    except (PyMongoError, TimeoutError, *_UNSTORABLE) as error:
        raise as_store_error(system, error, writes=writes) from error
    except RuntimeError as error:
        # The driver reads on after a write to a closed connection; uvloop then raises this.
        if "closed" not in str(error):
            raise
        raise _connection_lost(f"{system} has closed the connection", writes=writes) from error


def as_store_error(system: str, error: Exception, *, writes: bool = False) -> StoreError:
    """Return the port's error for an error of the driver.

    `writes`: a write failed on an open connection. If that broke, the write may have been applied.
    """
    if isinstance(error, _TIMEOUTS):
        return StoreTimeout(f"{system} did not answer in time")
    if isinstance(error, ConnectionFailure):
        return _connection_lost(f"{system} cannot be reached", writes=writes)
    if isinstance(error, OperationFailure) and not isinstance(error, BulkWriteError):
        return StoreRefused(f"{system} answered with error {error.code}")
    if isinstance(error, (ConfigurationError, InvalidName)):
        return StoreRefused(f"the URL of {system} is not valid")
    if isinstance(error, _UNSTORABLE):
        return StoreRefused(f"{system} cannot store the value ({type(error).__name__})")
    return StoreRefused(f"{system} failed with {type(error).__name__}")


def _connection_lost(text: str, *, writes: bool) -> StoreError:
    if writes:
        return StoreTimeout(f"{text}; the write may or may not have taken effect")
    return StoreUnavailable(text)
