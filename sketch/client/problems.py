"""The client's exceptions: the problems of docs/problems.md, and missing responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

__all__ = [
    "BrokenFilter",
    "Closed",
    "Conflict",
    "Invalid",
    "NotFound",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "TransactionAborted",
    "Unavailable",
    "Unreachable",
    "problem_of",
]


class PortolanError(Exception):
    """The base class of the client's errors."""


class Unreachable(PortolanError):
    """No answer came; a write may or may not have taken effect."""


class BrokenFilter(PortolanError):
    """The response is not a filter, or contradicts an earlier one."""


class Closed(PortolanError):
    """The client was closed."""


class Problem(PortolanError):
    """The service answered with a problem (RFC 9457).

    Attributes:
        status: The status code.
        kind: The last segment of the problem's type, such as ``not-found``; empty if there is none.
        detail: A description for people.
        errors: Locations of mistakes, each with ``pointer`` and ``detail``.
        instance: The id of the request, as in the service's log.
        retry_after_s: The delay before a retry, if the service states one (seconds).
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.kind = str(document.get("type", "")).rpartition("/")[2]
        self.detail = str(document.get("detail") or document.get("title") or "")
        errors = document.get("errors")
        self.errors: Sequence[Mapping[str, str]] = errors if isinstance(errors, list) else []
        self.instance = str(document.get("instance", ""))
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.kind}: {self.detail}")


class Invalid(Problem):
    """400 or 422: the request is invalid."""


class NotFound(Problem):
    """404: the object, class or database does not exist."""


class Conflict(Problem):
    """409: the request conflicts with the current state."""


class TransactionAborted(Conflict):
    """409: an object that a transaction read has changed; none of its writes was executed.

    Attributes:
        changed: Class and id of the objects that have changed since they were read; empty if other
            clients were writing the same objects all the time.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        super().__init__(status, document, retry_after_s)
        changes = document.get("changed")
        objects = [o for o in changes if isinstance(o, dict)] if isinstance(changes, list) else []
        self.changed: Sequence[tuple[str, str]] = [
            (str(object_.get("class")), str(object_.get("id"))) for object_ in objects
        ]


class PreconditionFailed(Problem):
    """412: another client changed the object; read it again."""


class PreconditionRequired(Problem):
    """428: this class accepts writes only with `if_match`."""


class Unavailable(Problem):
    """503: the service cannot answer now."""


_TYPES: Mapping[int, type[Problem]] = {
    400: Invalid,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    422: Invalid,
    428: PreconditionRequired,
    503: Unavailable,
}

_KINDS: Mapping[str, type[Problem]] = {"transaction-aborted": TransactionAborted}


def problem_of(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the exception for a response, whose body any proxy on the way may have written."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = {}
    seconds = "" if headers is None else headers.get("retry-after", "")
    members = document if isinstance(document, dict) else {}
    kind = str(members.get("type", "")).rpartition("/")[2]
    type_ = _KINDS.get(kind) or _TYPES.get(status, Problem)
    return type_(
        status, members, float(seconds) if seconds.isascii() and seconds.isdigit() else None
    )
