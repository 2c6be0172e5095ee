"""What a store says when it did not do what was asked."""

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
    """A store did not do what was asked; subclasses say whether it may have."""


class StoreUnavailable(StoreError):
    """The store could not be reached, so nothing was done, or the connection broke meanwhile."""


class StoreBusy(StoreUnavailable):
    """The record takes no writes for the moment, so nothing was done; the store is well."""


class StoreTimeout(StoreError):
    """The deadline passed; a write may or may not have taken effect."""


class StoreRefused(StoreError):
    """The store answered with an error that another try will not mend (a defect, a full disk)."""


class StoreTooCostly(StoreError):
    """A search took longer than it was given; the store is well."""
