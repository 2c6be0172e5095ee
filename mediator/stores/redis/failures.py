"""Errors of the driver and of the server, as the port's."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, ResponseError

from mediator.stores.port import StoreError, StoreRefused, StoreUnavailable

__all__ = ["ScriptUnknown", "error_of", "error_of_reply"]

_PASSING_CODES = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY")


class ScriptUnknown(StoreRefused):
    """The server has forgotten a script; nothing was done."""


def error_of_reply(text: str) -> StoreError:
    """Return the error of an error reply; its text names no secret."""
    if text.startswith("NOSCRIPT"):
        return ScriptUnknown(text)
    if text.startswith(_PASSING_CODES):
        return StoreUnavailable(text)
    return StoreRefused(text)


def error_of(error: Exception, system: str) -> StoreError:
    """Return the error of one raised while connecting."""
    # The driver wraps what it did not expect while connecting.
    if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
        return StoreRefused(f"{system} refuses the credentials")
    if isinstance(error, ResponseError):
        # Its text may quote what was sent, the password included.
        return StoreRefused(f"{system} refuses the connection")
    return StoreUnavailable(f"{system} cannot be reached: {type(error).__name__}")
