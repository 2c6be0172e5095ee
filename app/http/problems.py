"""Errors as problems (RFC 9457) with stable types, documented in docs/problems.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mediator.base import errors
from mediator.base.errors import (
    Forbidden,
    Location,
    MediatorError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from mediator.changes.feed import PositionGone
from mediator.standing.co_partitioning import NotCoPartitioned

__all__ = [
    "BODY_TOO_LARGE",
    "CROSS_SITE",
    "HEAD_TOO_LARGE",
    "IDEMPOTENCY_KEY_IN_USE",
    "INTERNAL",
    "INVALID",
    "MALFORMED_JSON",
    "METHOD_NOT_ALLOWED",
    "NOT_ACCEPTABLE",
    "PROBLEM_JSON",
    "PROBLEM_TYPES",
    "REQUEST_TIMEOUT",
    "ROUTE_NOT_FOUND",
    "TOO_MANY_CONNECTIONS",
    "UNSUPPORTED_MEDIA_TYPE",
    "HttpError",
    "ProblemType",
    "problem_of",
]

PROBLEM_JSON: Final = "application/problem+json"
_BASE = "/problems/"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A kind of problem: its slug ends the type URI, which never changes."""

    slug: str
    status: int
    title: str

    @property
    def uri(self) -> str:
        return _BASE + self.slug


INVALID: Final = ProblemType("invalid", 400, "Bad Request")
MALFORMED_JSON: Final = ProblemType("malformed-json", 400, "Malformed JSON")
ROUTE_NOT_FOUND: Final = ProblemType("route-not-found", 404, "Not Found")
METHOD_NOT_ALLOWED: Final = ProblemType("method-not-allowed", 405, "Method Not Allowed")
NOT_ACCEPTABLE: Final = ProblemType("not-acceptable", 406, "Not Acceptable")
IDEMPOTENCY_KEY_IN_USE: Final = ProblemType("idempotency-key-in-use", 409, "Idempotency-Key in use")
REQUEST_TIMEOUT: Final = ProblemType("request-timeout", 408, "Request Timeout")
BODY_TOO_LARGE: Final = ProblemType("body-too-large", 413, "Content Too Large")
UNSUPPORTED_MEDIA_TYPE: Final = ProblemType("unsupported-media-type", 415, "Unsupported Media Type")
HEAD_TOO_LARGE: Final = ProblemType("head-too-large", 431, "Request Header Fields Too Large")
CROSS_SITE: Final = ProblemType("cross-site", 403, "Cross-site request")
TOO_MANY_CONNECTIONS: Final = ProblemType("too-many-connections", 503, "Service Unavailable")
INTERNAL: Final = ProblemType("internal", 500, "Internal Server Error")

_CHALLENGE: Final = 'Bearer realm="portolan"'
_GONE: Final = ProblemType("gone", 410, "Gone")

_TYPES_BY_ERROR: dict[type[MediatorError], ProblemType] = {
    errors.Invalid: INVALID,
    errors.SchemaInvalid: ProblemType("schema-invalid", 400, "Invalid schema"),
    errors.ObjectTooLarge: BODY_TOO_LARGE,
    errors.OperatorRefused: ProblemType("operator-refused", 409, "Operator not applicable"),
    errors.Unauthenticated: ProblemType("unauthenticated", 401, "Unauthorized"),
    errors.Forbidden: ProblemType("forbidden", 403, "Forbidden"),
    errors.NotFound: ProblemType("not-found", 404, "Not Found"),
    errors.Conflict: ProblemType("conflict", 409, "Conflict"),
    errors.AlreadyExists: ProblemType("already-exists", 409, "Already exists"),
    errors.NotUnique: ProblemType("not-unique", 409, "Unique violation"),
    errors.DanglingReference: ProblemType("dangling-reference", 409, "Dangling reference"),
    errors.StillReferenced: ProblemType("still-referenced", 409, "Still referenced"),
    errors.Locked: ProblemType("locked", 409, "Locked"),
    errors.TransactionAborted: ProblemType("transaction-aborted", 409, "Transaction aborted"),
    NotCoPartitioned: ProblemType("not-co-partitioned", 409, "Not co-partitioned"),
    errors.DataWouldMove: ProblemType("data-would-move", 409, "Data migration required"),
    errors.ConstraintViolated: ProblemType("constraint-violated", 409, "Constraint violated"),
    errors.AdvisoryOnly: ProblemType("advisory-only", 409, "Advisory database"),
    PositionGone: _GONE,
    errors.ResultGone: _GONE,
    errors.SchemaRetired: ProblemType("schema-retired", 410, "Schema version retired"),
    errors.PreconditionFailed: ProblemType("precondition-failed", 412, "Precondition Failed"),
    errors.PreconditionRequired: ProblemType("precondition-required", 428, "Precondition Required"),
    errors.IdempotencyReused: ProblemType(
        "idempotency-key-reused", 422, "Idempotency-Key already used"
    ),
    errors.Unplaceable: ProblemType("unplaceable", 422, "No suitable system"),
    errors.NeedsScan: ProblemType("needs-scan", 422, "Index required"),
    errors.TooCostly: ProblemType("too-costly", 422, "Query limit exceeded"),
    errors.TooManyRequests: ProblemType("too-many-requests", 429, "Too Many Requests"),
    errors.StorageFull: ProblemType("insufficient-storage", 507, "Insufficient Storage"),
    errors.Unavailable: ProblemType("unavailable", 503, "Service Unavailable"),
    errors.OutcomeUnknown: ProblemType("outcome-unknown", 503, "Outcome unknown"),
}

PROBLEM_TYPES: Final[tuple[ProblemType, ...]] = tuple(
    sorted(
        {
            *_TYPES_BY_ERROR.values(),
            MALFORMED_JSON,
            CROSS_SITE,
            ROUTE_NOT_FOUND,
            METHOD_NOT_ALLOWED,
            NOT_ACCEPTABLE,
            IDEMPOTENCY_KEY_IN_USE,
            BODY_TOO_LARGE,
            UNSUPPORTED_MEDIA_TYPE,
            REQUEST_TIMEOUT,
            TOO_MANY_CONNECTIONS,
            HEAD_TOO_LARGE,
            INTERNAL,
        },
        key=lambda type_: (type_.status, type_.slug),
    )
)
"""All types, ordered by status."""


class HttpError(Exception):
    """A problem: an error at the level of HTTP, or the translation of another error.

    Attributes:
        detail: What happened, for people.
        extra: Additional members, for programs.
        headers: Header fields of the response.
    """

    def __init__(
        self,
        type_: ProblemType,
        detail: str,
        *,
        locations: Sequence[Location] = (),
        extra: dict[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.type = type_
        self.detail = detail
        self.locations = tuple(locations)
        self.extra = extra or {}
        self.headers = tuple(headers)

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        fields = {"content-type": PROBLEM_JSON, "cache-control": "no-store", **dict(self.headers)}
        return [(name.lower().encode(), value.encode()) for name, value in fields.items()]

    def document(self, instance: str | None = None) -> dict[str, Any]:
        """Return the members of RFC 9457, section 3.1, and `extra`; `instance` is a request id."""
        document: dict[str, Any] = {
            "type": self.type.uri,
            "title": self.type.title,
            "status": self.type.status,
            "detail": self.detail,
        }
        if instance is not None:
            document["instance"] = instance
        if self.locations:
            document["errors"] = [
                {"pointer": location.pointer, "detail": location.detail}
                for location in self.locations
            ]
        return {**self.extra, **document}

    def answer(self, id_: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, fields and body of the answer to a request of this id."""
        body = self.body(id_)
        response_fields = ((b"content-length", b"%d" % len(body)), (b"x-request-id", id_.encode()))
        return self.type.status, [*self.fields, *response_fields], body

    def body(self, instance: str | None = None) -> bytes:
        # Extra members can have any type: serialising a problem must not fail.
        return orjson.dumps(self.document(instance), default=str)


def problem_of(error: Exception) -> HttpError:
    """Translate an error; an unexpected one becomes `INTERNAL`, and its text is not revealed."""
    headers: tuple[tuple[str, str], ...] = ()
    match error:
        case HttpError():
            return error
        case Unavailable() | TooManyRequests():
            headers = (("Retry-After", str(max(1, round(error.retry_after_s)))),)
        case Unauthenticated():
            challenge_error = ', error="invalid_token"' if error.presented else ""
            headers = (("WWW-Authenticate", _CHALLENGE + challenge_error),)
        case Forbidden():
            challenge_error = f'{_CHALLENGE}, error="insufficient_scope"'  # RFC 6750, section 3.1
            headers = (("WWW-Authenticate", challenge_error),)
    if not isinstance(error, MediatorError):
        return HttpError(INTERNAL, "The request could not be served; its id is in the log.")
    kind = next((_TYPES_BY_ERROR[c] for c in type(error).__mro__ if c in _TYPES_BY_ERROR), INTERNAL)
    return HttpError(
        kind, error.detail, locations=error.locations, extra=error.extra, headers=headers
    )
