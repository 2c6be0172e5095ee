"""The access decision, a pure function; what is not granted is denied.

Three refusals, which disclose no more than each may:

- `UNAUTHENTICATED`: the request has no principal. It is the same whether the target exists or not.
- `HIDDEN`: the database is another tenant's, or nobody's, or nothing of it is granted. It is
  answered like a database that does not exist.
- `FORBIDDEN`: the principal has grants on the database, but not this one. It is decided by the
  grants alone, so it does not disclose whether a class exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from mediator.access.model import ANY, Principal, Scope
from mediator.schema.tree import Visibility

__all__ = ["AccessDecision", "AccessTarget", "decide", "sees"]


class AccessDecision(Enum):
    """The result of a decision."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    FORBIDDEN = auto()
    HIDDEN = auto()


@dataclass(frozen=True, slots=True)
class AccessTarget:
    """The target of an action.

    Attributes:
        database: The database.
        owner: The tenant that owns it; None: nobody.
        class_name: The class; None: the database as a whole.
        visibility: Who may keep answers of the class; ``public`` also means that anybody may read.
    """

    database: str
    owner: str | None = None
    class_name: str | None = None
    visibility: Visibility = "none"


def decide(principal: Principal | None, scope: Scope, target: AccessTarget) -> AccessDecision:
    """Decide about one action.

    Args:
        principal: The principal; None: the request has none.
        scope: What the action requires.
        target: Its target.
    """
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
