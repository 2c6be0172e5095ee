"""The conformance suite: proves, using only the port, that a store is safe to use.

It needs no test framework, so that a store can be checked from outside the project
(docs/stores.md)::

    report = await run(store)
    assert report.conforms, report.having(CheckStatus.FAILED)
"""

from mediator.stores.conformance.check import Check
from mediator.stores.conformance.expect import ConformanceFailure, NotOffered
from mediator.stores.conformance.runner import (
    CHECKS,
    CheckFinding,
    CheckStatus,
    Report,
    run,
    run_check,
)
from mediator.stores.conformance.scratch import SCRATCH_DATABASE, Scratch

__all__ = [
    "CHECKS",
    "SCRATCH_DATABASE",
    "Check",
    "CheckFinding",
    "CheckStatus",
    "ConformanceFailure",
    "NotOffered",
    "Report",
    "Scratch",
    "run",
    "run_check",
]
