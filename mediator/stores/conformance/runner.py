"""All checks of the suite: runs them against a store, and reports their findings."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mediator.stores.conformance import (
    aggregates,
    change_logs,
    changes,
    concurrency,
    indexes,
    intents,
    lifecycle,
    mirror,
    operators,
    path_indexes,
    queries,
    reservations,
    retries,
    scanning,
    unique,
    values,
    versions,
    writes,
)
from mediator.stores.conformance.check import Check
from mediator.stores.conformance.expect import ConformanceFailure, NotOffered
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Store, StoreTimeout, StoreUnavailable

__all__ = ["CHECKS", "CheckFinding", "CheckStatus", "Report", "run", "run_check"]

_THEMES: Final = (
    lifecycle.THEME,
    values.VALUES,
    values.MISSING,
    writes.WRITES,
    versions.THEME,
    writes.DELETES,
    retries.IDEMPOTENCY,
    retries.FENCING,
    intents.THEME,
    operators.THEME,
    writes.BULK,
    scanning.THEME,
    queries.QUERIES,
    queries.ORDERS,
    indexes.THEME,
    path_indexes.THEME,
    aggregates.THEME,
    mirror.THEME,
    changes.THEME,
    change_logs.THEME,
    concurrency.THEME,
    unique.THEME,
    reservations.THEME,
    values.HOSTILE,
)

CHECKS: Final[tuple[Check, ...]] = tuple(check for theme in _THEMES for check in theme.checks)
"""Every check, by theme, in the order in which they are run."""


class CheckStatus(StrEnum):
    """The status of a check.

    PASSED: the store has the property.
    FAILED: it does not.
    NOT_OFFERED: the check is about an optional protocol that the store does not have.
    UNKNOWN: the store was not reachable, or did not answer in time.
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A check with its status, the reason (unless it passed), and its seconds."""

    check: Check
    status: CheckStatus
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of all checks that were run."""

    findings: tuple[CheckFinding, ...]

    @property
    def conforms(self) -> bool:
        """Whether no check failed, and none was left unknown."""
        return not (self.having(CheckStatus.FAILED) or self.having(CheckStatus.UNKNOWN))

    def having(self, status: CheckStatus) -> list[CheckFinding]:
        return [finding for finding in self.findings if finding.status is status]


async def run(store: Store, *, checks: Sequence[Check] = CHECKS, only: str | None = None) -> Report:
    """Run checks one after another, each in scratch classes that are dropped afterwards.

    Args:
        store: The store, opened.
        checks: The checks.
        only: A shell pattern of names; other checks are left out.

    Returns:
        The findings; nothing is raised for a store that fails.
    """
    matching = [check for check in checks if fnmatch.fnmatchcase(check.name, only or "*")]
    return Report(tuple([await run_check(store, check) for check in matching]))


async def run_check(store: Store, check: Check) -> CheckFinding:
    """Run one check and drop its classes."""
    start = time.perf_counter()
    scratch = Scratch(store)
    try:
        status, detail = await _run(check, scratch)
    finally:
        await scratch.clear()
    return CheckFinding(check, status, detail, time.perf_counter() - start)


async def _run(check: Check, scratch: Scratch) -> tuple[CheckStatus, str]:
    try:
        await check.run(scratch)
    except NotOffered as reason:
        return CheckStatus.NOT_OFFERED, str(reason)
    except ConformanceFailure as failure:
        return CheckStatus.FAILED, str(failure)
    except (StoreUnavailable, StoreTimeout) as error:
        return CheckStatus.UNKNOWN, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever else a store raises is its failure
        return CheckStatus.FAILED, f"raised {type(error).__name__}: {error}"
    return CheckStatus.PASSED, ""
