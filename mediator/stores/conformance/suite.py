"""All checks of the suite, in the order they are run."""

from __future__ import annotations

from typing import Final

from mediator.stores.conformance import (
    aggregates,
    bulk,
    change_logs,
    changes,
    concurrency,
    deletes,
    fencing,
    hostile,
    idempotency,
    intents,
    lifecycle,
    mirror,
    missing,
    operators,
    ordering,
    queries,
    query_orders,
    scanning,
    values,
    versions,
    writes,
)
from mediator.stores.conformance.check import Check

__all__ = ["CHECKS"]

_MODULES = (
    lifecycle,
    values,
    missing,
    writes,
    versions,
    deletes,
    idempotency,
    fencing,
    intents,
    operators,
    bulk,
    scanning,
    ordering,
    queries,
    query_orders,
    aggregates,
    mirror,
    changes,
    change_logs,
    concurrency,
    hostile,
)

CHECKS: Final[tuple[Check, ...]] = tuple(c for module in _MODULES for c in module.THEME.checks)
"""Every check, by theme."""
