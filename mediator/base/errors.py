"""The errors of the mediator.

MediatorError
├── Invalid           the request names or says something that cannot be (with locations)
│   ├── SchemaInvalid     the schema itself is wrong
│   └── OperatorRefused   the operator cannot be applied to the value that is there
├── NeedsScan         a query for which a store would have to send all of its records
├── TooCostly         a query that goes beyond its limits of rows or time
├── Unauthenticated   the caller is unknown, and not everybody may
├── Forbidden         the caller may not do that
├── NotFound          database, class, object or system is not there
├── Conflict          the state forbids it
│   ├── AlreadyExists     create of an object that is there
│   ├── Locked            a transaction is about to write the object; try again
│   ├── TransactionAborted    what a transaction has read was changed; nothing was done
│   ├── DataWouldMove     a schema change that would move existing data
│   └── AdvisoryOnly      data routes of a database in advisory mode
├── ResultGone        the result of a run is no longer kept
├── PreconditionFailed    a version differs from what the client expected
├── PreconditionRequired  the class requires If-Match
├── IdempotencyReused     same key, other request
├── TooManyRequests   a tenant requests more than it may; try again later
├── StorageFull       a tenant keeps as many objects as it may
├── Unplaceable       no system can serve a node of the schema
└── Unavailable       a system that is needed does not answer; try again later
    └── OutcomeUnknown    the deadline passed during a write

HTTP status and problem type of each are given in `app.http.problems` and docs/problems.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AdvisoryOnly",
    "AlreadyExists",
    "Conflict",
    "DataWouldMove",
    "Forbidden",
    "IdempotencyReused",
    "Invalid",
    "Location",
    "Locked",
    "MediatorError",
    "NeedsScan",
    "NotFound",
    "OperatorRefused",
    "OutcomeUnknown",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "ResultGone",
    "SchemaInvalid",
    "StorageFull",
    "TooCostly",
    "TooManyRequests",
    "TransactionAborted",
    "Unauthenticated",
    "Unavailable",
    "Unplaceable",
]


@dataclass(frozen=True, slots=True)
class Location:
    """Where a mistake is: a JSON pointer (RFC 6901) into the body, or the name of a parameter."""

    pointer: str
    detail: str


class PortolanError(Exception):
    """What may go wrong while everything works as it should: a request, a store, the network."""


class MediatorError(PortolanError):
    """Base of all; `detail` is for people, `locations` say where, `extra` is for machines."""

    def __init__(
        self,
        detail: str,
        *,
        locations: Sequence[Location] = (),
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.locations = tuple(locations)
        self.extra = extra or {}


class Invalid(MediatorError):
    """The request names or says something that cannot be."""


class SchemaInvalid(Invalid):
    """The schema is wrong; every error has its location."""


class OperatorRefused(Invalid):
    """The operator cannot be applied to the value that is there (overflow, too long)."""


class Unauthenticated(MediatorError):
    """The caller is unknown; `presented` says whether an invalid credential was sent."""

    def __init__(self, detail: str, *, presented: bool = False) -> None:
        super().__init__(detail)
        self.presented = presented


class Forbidden(MediatorError):
    """The caller may not do that; `extra["scope"]` names what would be needed."""


class NotFound(MediatorError):
    """The database, class, object or system is not there."""


class Conflict(MediatorError):
    """The state forbids it."""


class AlreadyExists(Conflict):
    """Create of an object that is there."""


class Locked(Conflict):
    """A transaction is about to write the object, and did not get done with it in time."""


class TransactionAborted(Conflict):
    """What a transaction has read was changed; nothing was done, and it may be retried."""


class DataWouldMove(Conflict):
    """A schema change would move or reinterpret existing data; `extra["plan"]` says which."""


class NeedsScan(MediatorError):
    """A store could carry out the query only by sending all of its records."""


class TooCostly(MediatorError):
    """The query examines more rows, or takes more time, than it may."""


class AdvisoryOnly(Conflict):
    """The database is in advisory mode: it answers advice and holds no data."""


class ResultGone(MediatorError):
    """The result of a run was there, and is no longer kept."""


class PreconditionFailed(MediatorError):
    """A version differs from what the client expected."""


class PreconditionRequired(MediatorError):
    """The class requires If-Match on writes to existing objects."""


class IdempotencyReused(MediatorError):
    """The Idempotency-Key was used before with another request."""


class Unplaceable(MediatorError):
    """No system can serve a node; `extra["nodes"]` names node, requirement and what lacks."""


class Unavailable(MediatorError):
    """A system that is needed does not answer; nothing was acknowledged."""

    def __init__(self, detail: str, *, system: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, extra={"system": system})
        self.system = system
        self.retry_after_s = retry_after_s


class TooManyRequests(MediatorError):
    """A tenant requests more than it may at a time; `extra["limit"]` names the limit."""

    def __init__(
        self, detail: str, *, retry_after_s: float = 1.0, extra: dict[str, Any] | None = None
    ) -> None:
        super().__init__(detail, extra=extra)
        self.retry_after_s = retry_after_s


class StorageFull(MediatorError):
    """A tenant keeps as many objects as it may; nothing was created."""


class OutcomeUnknown(Unavailable):
    """The deadline passed during a write: it may or may not have taken effect."""
