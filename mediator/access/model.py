"""Tenants, principals and their grants: plain immutable data.

A tenant owns databases. A principal belongs to one tenant and has grants; a grant never reaches a
database that its tenant does not own. The operator's tenant, `OPERATOR`, reaches all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mediator.base.errors import Invalid, Location
from mediator.schema.ids import NAME

__all__ = [
    "ANY",
    "MAX_GRANTS",
    "MAX_SUBJECT_LENGTH",
    "OPERATOR",
    "Grant",
    "Principal",
    "Scope",
    "is_subject",
    "parse_grant",
    "parse_grants",
]

MAX_SUBJECT_LENGTH: Final = 255
"""Limit of characters of a subject."""

_FORBIDDEN_CHARACTERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, which no store keeps completely, and lone surrogates, which are not text."""

ANY: Final = "*"
"""Every database of the tenant, or every class of the database."""

OPERATOR: Final = "operator"
"""The tenant whose grants reach every database; it owns none."""

MAX_GRANTS: Final = 256
"""Limit of grants of one principal: each request checks them."""


class Scope(StrEnum):
    """A kind of permission.

    WRITE includes READ, because the answer to a write shows the object: a right to write without
    one to read could not be enforced. ADMIN includes everything.
    """

    READ = "read"
    WRITE = "write"
    SCHEMA = "schema"
    JOBS = "jobs"
    ADMIN = "admin"


_INCLUDES: Final = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.WRITE, Scope.READ}),
    Scope.SCHEMA: frozenset({Scope.SCHEMA}),
    Scope.JOBS: frozenset({Scope.JOBS}),
    Scope.ADMIN: frozenset(Scope),
}


_SCOPES: Final = {scope.value: scope for scope in Scope}


@dataclass(frozen=True, slots=True)
class Grant:
    scope: Scope
    database: str = ANY
    class_name: str = ANY

    def concerns(self, database: str) -> bool:
        return self.database in (ANY, database)

    def covers(self, scope: Scope, database: str, class_name: str | None) -> bool:
        """Whether it allows `scope` on a class, or (None) on the whole database."""
        return (
            scope in _INCLUDES[self.scope]
            and self.concerns(database)
            and self.class_name in (ANY, class_name)
        )

    def __str__(self) -> str:
        if self.database == ANY:
            return self.scope
        if self.class_name == ANY:
            return f"{self.scope}:{self.database}"
        return f"{self.scope}:{self.database}/{self.class_name}"


@dataclass(frozen=True, slots=True)
class Principal:
    subject: str
    tenant: str
    grants: frozenset[Grant]

    @property
    def operates(self) -> bool:
        return self.tenant == OPERATOR


def is_subject(text: str) -> bool:
    """Whether a text can name a subject: stores keep it, and pages show it."""
    return 0 < len(text) <= MAX_SUBJECT_LENGTH and _FORBIDDEN_CHARACTERS.search(text) is None


def parse_grant(text: str) -> Grant | None:
    """Parse ``scope``, ``scope:database`` or ``scope:database/class``; None: not a grant.

    The scopes of a token may be values for other services.
    """
    name, colon, target = text.partition(":")
    database, slash, class_name = target.partition("/")
    scope = _SCOPES.get(name)
    if scope is None or (colon and not NAME.fullmatch(database)):
        return None
    if slash and not NAME.fullmatch(class_name):
        return None
    return Grant(scope, database or ANY, class_name or ANY)


def parse_grants(texts: Iterable[object]) -> frozenset[Grant]:
    """Parse the grants of an administrator; raises `Invalid` with the location of each error."""
    raw = list(texts)
    if len(raw) > MAX_GRANTS:
        locations = [Location("/grants", f"at most {MAX_GRANTS} are allowed")]
        raise Invalid("There are too many grants.", locations=locations)
    parsed = [parse_grant(text) if isinstance(text, str) else None for text in raw]
    locations = [
        Location(f"/grants/{index}", "scope, scope:database or scope:database/class is expected")
        for index, grant in enumerate(parsed)
        if grant is None
    ]
    if locations:
        raise Invalid("A grant is malformed.", locations=locations)
    return frozenset(grant for grant in parsed if grant is not None)
