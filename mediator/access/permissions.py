"""Decisions about routes: a permission is a scope, and over what it is required."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from mediator.access.decision import AccessDecision, AccessTarget, decide
from mediator.access.model import ANY, Principal, Scope

__all__ = ["Extent", "Permission", "decide_route"]


class Extent(Enum):
    """Over what a scope is required."""

    NOTHING = auto()
    """Anybody may, without a key."""

    ANYTHING = auto()
    """Any key will do; the route shows to each what is its own."""

    DATABASE = auto()
    """The database of the path or of the query; where none is named, the installation."""

    TENANT = auto()
    """The tenant of the path, all of it."""

    INSTALLATION = auto()
    """Everything: only the operator has that."""


@dataclass(frozen=True, slots=True)
class Permission:
    """A scope, and over what."""

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
        principal: The principal; None: the request has none.
        permission: What the route requires.
        database: The database that it names.
        tenant: The tenant that its path names.
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
    """Whether a scope is granted over all databases of the tenant."""
    return any(grant.covers(scope, ANY, None) for grant in principal.grants)
