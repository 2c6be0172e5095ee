"""Expectations of the checks, and the failure they raise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from mediator.stores.port import Record, Status, WriteResult

__all__ = [
    "ConformanceFailure",
    "NotOffered",
    "applied",
    "expect_status",
    "expect_statuses",
    "identical",
    "present",
    "require",
    "same",
    "show",
]

_EQUAL = (str, int, bytes, type(None))
"""Frequent types whose values are identical if they are equal and of the same type."""
_MAX_CHARACTERS = 200
_SHORT_LIST = 10


class ConformanceFailure(Exception):
    """The store violates the port; the message has the expected and the actual result."""


class NotOffered(Exception):
    """The store does not offer the optional protocol that the check is about."""


def show(value: object) -> str:
    """Format a value for a message, truncated."""
    text = repr(value)
    return (
        text
        if len(text) <= _MAX_CHARACTERS
        else f"{text[:_MAX_CHARACTERS]}… ({len(text)} characters)"
    )


def require(condition: bool, message: str) -> None:
    """Raise `ConformanceFailure` with the message unless the condition holds."""
    if not condition:
        raise ConformanceFailure(message)


def identical(left: Any, right: Any) -> bool:
    """Whether values are equal, including types: 1 is not 1.0 or True, and -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, _EQUAL):
        return bool(left == right)
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(identical(left[k], right[k]) for k in left)
    if isinstance(left, Record):
        return left == right and identical(dict(left.values), dict(right.values))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, datetime):
        return bool(left == right) and left.utcoffset() == right.utcoffset() == timedelta(0)
    return bool(left == right)


def same(actual: object, expected: object, label: str) -> None:
    """Require that the actual value is identical to the expected one."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        actual, expected = dict(actual), dict(expected)
    if not identical(actual, expected):
        location, expected_value, actual_value = _difference(actual, expected)
        raise ConformanceFailure(
            f"{label}{location}: expected {show(expected_value)}, found {show(actual_value)}"
        )


def _difference(actual: Any, expected: Any) -> tuple[str, Any, Any]:
    """Return the first difference of two long lists: position, expected and actual value."""
    if not (isinstance(actual, list) and isinstance(expected, list)) or len(expected) < _SHORT_LIST:
        return "", expected, actual
    pairs = zip(expected, actual, strict=False)
    first = next((i for i, (e, f) in enumerate(pairs) if not identical(f, e)), None)
    if first is None:
        return " (length)", len(expected), len(actual)
    return f" (at {first})", expected[first], actual[first]


def expect_status(result: WriteResult, status: Status, label: str) -> WriteResult:
    """Require the status of a write, and return its result."""
    require(result.status is status, f"{label}: expected {status.name}, found {_describe(result)}")
    return result


def expect_statuses(results: Sequence[WriteResult], expected: Sequence[Status], label: str) -> None:
    """Require the statuses of many writes, in order."""
    same([r.status.name for r in results], [s.name for s in expected], label)


def applied(result: WriteResult, label: str = "a write") -> WriteResult:
    """Require that a write took effect now."""
    return expect_status(result, Status.APPLIED, label)


def present(record: Record | None, label: str) -> Record:
    if record is None:
        raise ConformanceFailure(f"{label}: expected a record, found none")
    return record


def _describe(result: WriteResult) -> str:
    reason = f" ({result.failure.reason})" if result.failure else ""
    return f"{result.status.name}{reason}"
