"""The errors of the mediator; docs/problems.md says how HTTP answers each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AdvisoryOnly",
    "AlreadyExists",
    "Conflict",
    "ConstraintViolated",
    "DanglingReference",
    "DataWouldMove",
    "Forbidden",
    "IdempotencyReused",
    "Invalid",
    "Location",
    "Locked",
    "MediatorError",
    "NeedsScan",
    "NotFound",
    "NotUnique",
    "ObjectTooLarge",
    "OperatorRefused",
    "OutcomeUnknown",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "ResultGone",
    "SchemaInvalid",
    "SchemaRetired",
    "StillReferenced",
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
    """The location of an error: a JSON pointer (RFC 6901) into the body, or a parameter's name."""

    pointer: str
    detail: str


class PortolanError(Exception):
    """An error that can occur in a correct system: of a request, a store, the network."""


class MediatorError(PortolanError):
    """Base class; `detail` is for people, `locations` say where, `extra` is for programs."""

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
    """The request names or states something impossible."""


class SchemaInvalid(Invalid):
    """The schema is wrong; every error has its location."""


class OperatorRefused(Invalid):
    """The operator cannot be applied to the current value (overflow, too long)."""


class ObjectTooLarge(MediatorError):
    """The object would exceed the size limit of its system; nothing was written."""


class Unauthenticated(MediatorError):
    """The caller is unknown; `presented` says whether an invalid credential was sent."""

    def __init__(self, detail: str, *, presented: bool = False) -> None:
        super().__init__(detail)
        self.presented = presented


class Forbidden(MediatorError):
    """The caller may not do that; `extra["scope"]` names the missing scope."""


class NotFound(MediatorError):
    """The database, class, object or system does not exist."""


class Conflict(MediatorError):
    """The state forbids it."""


class AlreadyExists(Conflict):
    """The object to be created exists."""


class NotUnique(Conflict):
    """Another object has the values of a unique constraint; `locations` name the fields.

    `holder` is its id, which responses do not name: writers may not be allowed to read it.
    """

    def __init__(self, detail: str, *, holder: str, locations: Sequence[Location] = ()) -> None:
        super().__init__(detail, locations=locations)
        self.holder = holder


class DanglingReference(Conflict):
    """The object that a foreign key names does not exist; `locations` name the fields."""


class StillReferenced(Conflict):
    """Foreign keys forbid a deletion; `extra["references"]` lists them, with referring objects."""

    def shown_to(self, may_read_all: Callable[[str], bool]) -> StillReferenced:
        """Return the error for a caller who may read all objects of only some classes."""
        references = self.extra.get("references", ())
        visible = [r for r in references if may_read_all(r["class"])]
        if len(visible) == len(references):
            return self
        detail = "Other objects refer to those to be deleted; nothing was done."
        return StillReferenced(detail, extra={"references": visible} if visible else None)


class Locked(Conflict):
    """A transaction is about to write the object, and did not end in time."""


class TransactionAborted(Conflict):
    """The read set of a transaction changed; nothing was done, and it can be retried."""


class DataWouldMove(Conflict):
    """A schema change would move or reinterpret existing data; `extra["plan"]` says which."""


class ConstraintViolated(Conflict):
    """Existing objects break constraints that a schema change adds; `extra["violations"]`."""


class NeedsScan(MediatorError):
    """A store could execute the query only by sending all of its records."""


class TooCostly(MediatorError):
    """The query exceeds its limit of rows, time or memory.

    `examined` counts the rows until then if another limit was exceeded.
    """

    examined: int = 0


class AdvisoryOnly(Conflict):
    """The database is in advisory mode: it gives advice and holds no data."""


class SchemaRetired(MediatorError):
    """The schema version to which the request is pinned is no longer served."""


class ResultGone(MediatorError):
    """The result of a run existed, and is no longer kept."""


class PreconditionFailed(MediatorError):
    """A version differs from what the client expected."""


class PreconditionRequired(MediatorError):
    """The class requires If-Match on writes to existing objects."""


class IdempotencyReused(MediatorError):
    """The Idempotency-Key was used before with another request.

    `fingerprint` is that of the earlier request, if known; responses do not name it.
    """

    def __init__(
        self,
        detail: str,
        *,
        fingerprint: str = "",
        locations: Sequence[Location] = (),
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail, locations=locations, extra=extra)
        self.fingerprint = fingerprint


class Unplaceable(MediatorError):
    """No system can serve a node; `extra["nodes"]` names node, requirement and shortfall."""


class Unavailable(MediatorError):
    """A required system does not answer; nothing was acknowledged."""

    def __init__(self, detail: str, *, system: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, extra={"system": system})
        self.system = system
        self.retry_after_s = retry_after_s


class TooManyRequests(MediatorError):
    """A tenant exceeds its limit of requests; `extra["limit"]` names the limit."""

    def __init__(
        self, detail: str, *, retry_after_s: float = 1.0, extra: dict[str, Any] | None = None
    ) -> None:
        super().__init__(detail, extra=extra)
        self.retry_after_s = retry_after_s


class StorageFull(MediatorError):
    """A tenant has reached its limit of objects; nothing was created."""


class OutcomeUnknown(Unavailable):
    """A write got no answer: it may or may not have taken effect."""
