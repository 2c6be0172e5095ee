"""The access decision, a pure function that denies by default.

Three refusals, with the minimum of disclosure:

- `UNAUTHENTICATED`: the request has no principal, whether the target exists or not.
- `HIDDEN`: the database is another tenant's, or has no owner, or the principal has no grant on it.
  The answer is that of a missing database.
- `FORBIDDEN`: the principal has grants on the database, but not this one. The grants alone decide,
  so it does not disclose whether a class exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from mediator.access.model import ANY, Principal, Scope
from mediator.schema.tree import Visibility

__all__ = [
    "AccessDecision",
    "AccessTarget",
    "Extent",
    "Permission",
    "decide",
    "decide_route",
    "sees",
]


class AccessDecision(Enum):
    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    FORBIDDEN = auto()
    HIDDEN = auto()


@dataclass(frozen=True, slots=True)
class AccessTarget:
    """The target of an action: a class, or (None) a whole database; `owner` is its tenant.

    `visibility` says who may cache answers of the class; ``public`` also opens it to all readers.
    """

    database: str
    owner: str | None = None
    class_name: str | None = None
    visibility: Visibility = "none"


def decide(principal: Principal | None, scope: Scope, target: AccessTarget) -> AccessDecision:
    """Decide whether a principal (None: the request has none) has a scope on a target."""
    if scope is Scope.READ and target.visibility == "public" and target.class_name is not None:
        return AccessDecision.ALLOWED
    if principal is None:
        return AccessDecision.UNAUTHENTICATED
    if not sees(principal, target.database, target.owner):
        return AccessDecision.HIDDEN
    for grant in principal.grants:
        if grant.covers(scope, target.database, target.class_name):
            return AccessDecision.ALLOWED
    return AccessDecision.FORBIDDEN


def sees(
    principal: Principal, database: str, owner: str | None, class_name: str | None = None
) -> bool:
    """Whether a principal may know that a database, or a class of it, exists."""
    if not principal.operates and owner != principal.tenant:
        return False
    return any(
        grant.concerns(database) and (class_name is None or grant.class_name in (ANY, class_name))
        for grant in principal.grants
    )


class Extent(Enum):
    NOTHING = auto()
    """No key is required."""

    ANYTHING = auto()
    """Any key; the route shows each principal its own data."""

    DATABASE = auto()
    """The database of the path or the query; without one, the installation."""

    TENANT = auto()
    """The whole tenant of the path."""

    INSTALLATION = auto()
    """The whole installation: only for the operator."""


@dataclass(frozen=True, slots=True)
class Permission:
    extent: Extent
    scope: Scope = Scope.ADMIN


def decide_route(
    principal: Principal | None,
    permission: Permission,
    database: str | None,
    tenant: str | None,
    owner_of: Callable[[str], str | None],
) -> AccessDecision:
    """Decide about one request.

    Args:
        principal: None: the request has none.
        permission: What the route requires.
        database: The database in the path or the query.
        tenant: The tenant in the path.
        owner_of: Returns the tenant that owns a database.
    """
    if permission.extent is Extent.NOTHING:
        return AccessDecision.ALLOWED
    if principal is None:
        return AccessDecision.UNAUTHENTICATED
    if permission.extent is Extent.ANYTHING:
        return AccessDecision.ALLOWED
    if permission.extent is Extent.TENANT:
        return _decide_tenant(principal, permission.scope, tenant)
    if permission.extent is Extent.DATABASE and database is not None:
        return decide(principal, permission.scope, AccessTarget(database, owner_of(database)))
    allowed = principal.operates and _covers_tenant(principal, permission.scope)
    return AccessDecision.ALLOWED if allowed else AccessDecision.FORBIDDEN


def _decide_tenant(principal: Principal, scope: Scope, tenant: str | None) -> AccessDecision:
    if not principal.operates and principal.tenant != tenant:
        return AccessDecision.HIDDEN
    return AccessDecision.ALLOWED if _covers_tenant(principal, scope) else AccessDecision.FORBIDDEN


def _covers_tenant(principal: Principal, scope: Scope) -> bool:
    return any(grant.covers(scope, ANY, None) for grant in principal.grants)
