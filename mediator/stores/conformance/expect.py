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
"""Most of what is compared: of these, what is equal and of one type is the same."""
_SHOWN = 200
_SHORT = 10


class ConformanceFailure(Exception):
    """The store violates the port; the message says what was expected and what was found."""


class NotOffered(Exception):
    """The store does not offer the optional protocol that the check is about."""


def show(value: object) -> str:
    """Represent a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def require(condition: bool, message: str) -> None:
    """Raise `ConformanceFailure` with the message unless the condition holds."""
    if not condition:
        raise ConformanceFailure(message)


def identical(left: Any, right: Any) -> bool:
    """Whether two values are the same, in type too: 1 is not 1.0, nor True, and -0.0 is not 0.0."""
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


def same(actual: object, expected: object, what: str) -> None:
    """Require that the actual value is identical to the expected one."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        actual, expected = dict(actual), dict(expected)
    if not identical(actual, expected):
        location, lacking, wrong = _difference(actual, expected)
        raise ConformanceFailure(f"{what}{location}: expected {show(lacking)}, found {show(wrong)}")


def _difference(actual: Any, expected: Any) -> tuple[str, Any, Any]:
    """Return where two long lists differ first, with the expected and the actual value there."""
    if not (isinstance(actual, list) and isinstance(expected, list)) or len(expected) < _SHORT:
        return "", expected, actual
    pairs = zip(expected, actual, strict=False)
    first = next((i for i, (e, f) in enumerate(pairs) if not identical(f, e)), None)
    if first is None:
        return " (length)", len(expected), len(actual)
    return f" (at {first})", expected[first], actual[first]


def expect_status(result: WriteResult, status: Status, what: str) -> WriteResult:
    """Require the status of a write, and return its result."""
    require(result.status is status, f"{what}: expected {status.name}, found {_describe(result)}")
    return result


def expect_statuses(results: Sequence[WriteResult], expected: Sequence[Status], what: str) -> None:
    """Require the statuses of many writes, in order."""
    same([r.status.name for r in results], [s.name for s in expected], what)


def applied(result: WriteResult, what: str = "a write") -> WriteResult:
    """Require that a write took effect now."""
    return expect_status(result, Status.APPLIED, what)


def present(record: Record | None, what: str) -> Record:
    if record is None:
        raise ConformanceFailure(f"{what}: expected a record, found none")
    return record


def _describe(result: WriteResult) -> str:
    reason = f" ({result.failure.reason})" if result.failure else ""
    return f"{result.status.name}{reason}"
