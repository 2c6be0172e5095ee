"""Errors of stores."""

from __future__ import annotations

from mediator.base.errors import PortolanError

__all__ = [
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreTimeout",
    "StoreTooCostly",
    "StoreUnavailable",
]


class StoreError(PortolanError):
    """A call failed; subclasses say whether it may have taken effect."""


class StoreUnavailable(StoreError):
    """The store could not be reached, and nothing was done; or the connection broke meanwhile."""


class StoreBusy(StoreUnavailable):
    """The record takes no writes at the moment, and nothing was done; the store is healthy."""


class StoreTimeout(StoreError):
    """The deadline passed; a write may or may not have taken effect."""


class StoreRefused(StoreError):
    """The store replied with an error that a retry does not mend (a defect, a full disk)."""


class StoreTooCostly(StoreError):
    """A search exceeded its deadline; the store is healthy."""
