"""Maps errors of the driver and the server, and values that Redis cannot store, to the port's."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from redis.exceptions import AuthenticationError, ResponseError

from mediator.stores.port import StoreError, StoreRefused, StoreUnavailable

__all__ = ["ScriptUnknown", "error_of", "error_of_reply", "refuse_unstorable"]

_TRANSIENT_CODES: Final = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY")


class ScriptUnknown(StoreRefused):
    """The server does not know a script; nothing was done."""


def error_of_reply(text: str) -> StoreError:
    """Return the port's error for an error reply; its text contains no secret."""
    if text.startswith("NOSCRIPT"):
        return ScriptUnknown(text)
    if text.startswith(_TRANSIENT_CODES):
        return StoreUnavailable(text)
    return StoreRefused(text)


def error_of(error: Exception, system: str) -> StoreError:
    """Return the port's error for an error raised while connecting."""
    # The driver wraps unexpected errors.
    if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
        return StoreRefused(f"{system} refuses the credentials")
    if isinstance(error, ResponseError):
        # Its text can quote the request with its password.
        return StoreRefused(f"{system} refuses the connection")
    return StoreUnavailable(f"{system} cannot be reached: {type(error).__name__}")


class _RefuseUnstorable:
    """Refuses values that cannot be encoded: surrogates, integers beyond JSON's."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, TypeError | ValueError | OverflowError):
            raise StoreRefused(f"a value cannot be stored: {type(error).__name__}") from None


refuse_unstorable: Final = _RefuseUnstorable()
"""Shared by all calls: creating one with contextlib costs as much as packing a write."""
