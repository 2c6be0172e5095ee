"""The client's exceptions, one tree below `PortolanError`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "AlreadyExists",
    "BrokenReply",
    "Conflict",
    "ConstraintViolated",
    "DanglingReference",
    "Forbidden",
    "Gone",
    "IdempotencyKeyInUse",
    "Invalid",
    "Location",
    "Locked",
    "NotFound",
    "NotUnique",
    "OutcomeUnknown",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "RateLimited",
    "SchemaRetired",
    "ServerError",
    "StillReferenced",
    "StorageFull",
    "TooLarge",
    "TransactionAborted",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "problem_from",
    "problem_of",
]

_SERVER_ERROR: Final = 500


class PortolanError(Exception):
    """The base class of the client's errors.

    Attributes:
        idempotency_key: Key of the failed write; under this key the same call can be repeated, and
            takes effect once. None: it was not a write.
    """

    idempotency_key: str | None = None


class Unreachable(PortolanError):
    """No readable reply came; a write may or may not have taken effect."""


class BrokenReply(PortolanError):
    """The reply is not the service's: a proxy's page, for example."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a mistake is: a JSON pointer into the body, or the name of a parameter or field."""

    pointer: str
    detail: str


class Problem(PortolanError):
    """The service refused (RFC 9457).

    Attributes:
        status: The status code.
        kind: The last segment of the problem's type, such as ``not-found``; empty if there is none.
        detail: A description for people.
        locations: The locations of the mistakes.
        instance: The id of the request, as in the service's log.
        retry_after_s: The delay before a retry, if the service states one (seconds).
        members: All members of the problem, including those of its type.
    """

    def __init__(
        self, status: int, members: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.kind = _kind_of(members)
        self.detail = str(members.get("detail") or members.get("title") or "")
        self.locations = tuple(
            Location(str(error.get("pointer", "")), str(error.get("detail", "")))
            for error in _objects(members.get("errors"))
        )
        self.instance = str(members.get("instance", ""))
        self.retry_after_s = retry_after_s
        self.members = members
        unmentioned = [at for at in self.locations if at.pointer not in self.detail]
        where = "".join(f"; {at.pointer}: {at.detail}" for at in unmentioned)
        super().__init__(f"{status} {self.kind}: {self.detail}{where}")


class Invalid(Problem):
    """The request is invalid, at `locations`; a retry would also fail."""


class Unauthenticated(Problem):
    """401: the key or the token is missing, or invalid."""


class Forbidden(Problem):
    """403: the key or the token does not permit this."""


class NotFound(Problem):
    """404: the object, class or database does not exist."""


class Conflict(Problem):
    """409: the current state forbids it."""


class AlreadyExists(Conflict):
    """A create names an object that exists."""


class NotUnique(Conflict):
    """Another object has values that no two objects of the class may share."""


class DanglingReference(Conflict):
    """A foreign key would refer to an object that does not exist; nothing was written."""


class StillReferenced(Conflict):
    """Foreign keys forbid the deletion of an object; nothing was written."""

    @property
    def references(self) -> Sequence[Mapping[str, Any]]:
        """Each with `class`, `field`, `count`, `more` and a `sample` of ids, as far as readable."""
        return _objects(self.members.get("references"))


class ConstraintViolated(Conflict):
    """A change of a schema adds constraints that existing objects break."""

    @property
    def violations(self) -> Sequence[Mapping[str, Any]]:
        """Each with its `location`, `constraint`, `count` and a `sample` of ids."""
        return _objects(self.members.get("violations"))


class IdempotencyKeyInUse(Conflict):
    """The first request with this Idempotency-Key has not been answered yet."""


class Locked(Conflict):
    """A write over several systems holds the object; nothing was done."""


class TransactionAborted(Conflict):
    """An object that a transaction read has changed; none of its writes was executed."""

    @property
    def changed(self) -> Sequence[tuple[str, str]]:
        """Class and id of each changed object; none if only other clients' writes came first."""
        changed = _objects(self.members.get("changed"))
        return [(str(object_.get("class")), str(object_.get("id"))) for object_ in changed]


class Gone(Problem):
    """410: the position of a feed, or a cursor, is no longer kept."""


class SchemaRetired(Problem):
    """410: the version of the schema that the client is pinned to is no longer served."""

    @property
    def present(self) -> int | None:
        """The version in force."""
        present = self.members.get("present")
        return present if isinstance(present, int) else None


class PreconditionFailed(Problem):
    """412: the object has another version, or exists although it must not; nothing was done."""


class TooLarge(Problem):
    """413 or 431: the body, or the head of the request, is longer than allowed."""


class PreconditionRequired(Problem):
    """428: this class accepts writes only with `if_match`."""


class RateLimited(Problem):
    """429: a limit of the tenant is exceeded; `retry_after_s` says for how long."""


class ServerError(Problem):
    """5xx: the service, or a proxy before it, has a defect."""


class Unavailable(ServerError):
    """503, or 408: the service cannot answer now; nothing was acknowledged."""


class OutcomeUnknown(Unavailable):
    """503: a write may or may not have taken effect."""


class StorageFull(ServerError):
    """507: the tenant has reached its limit of objects."""


_BY_STATUS: Final[Mapping[int, type[Problem]]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: TooLarge,
    415: Invalid,
    422: Invalid,
    428: PreconditionRequired,
    429: RateLimited,
    431: TooLarge,
    503: Unavailable,
    507: StorageFull,
}

_BY_KIND: Final[Mapping[str, type[Problem]]] = {
    "already-exists": AlreadyExists,
    "constraint-violated": ConstraintViolated,
    "dangling-reference": DanglingReference,
    "idempotency-key-in-use": IdempotencyKeyInUse,
    "locked": Locked,
    "not-unique": NotUnique,
    "outcome-unknown": OutcomeUnknown,
    "schema-retired": SchemaRetired,
    "still-referenced": StillReferenced,
    "transaction-aborted": TransactionAborted,
}


def problem_of(status: int, headers: Mapping[str, str], content: bytes) -> Problem:
    """Return the exception for a refusal, whose body any proxy on the way may have written."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    seconds = headers.get("retry-after", "")
    retry_after_s = float(seconds) if seconds.isascii() and seconds.isdigit() else None
    return problem_from(status, document if isinstance(document, dict) else {}, retry_after_s)


def problem_from(
    status: int, members: Mapping[str, Any], retry_after_s: float | None = None
) -> Problem:
    default = ServerError if status >= _SERVER_ERROR else Problem
    type_ = _BY_KIND.get(_kind_of(members)) or _BY_STATUS.get(status, default)
    return type_(status, members, retry_after_s)


def _kind_of(members: Mapping[str, Any]) -> str:
    return str(members.get("type", "")).rpartition("/")[2]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
