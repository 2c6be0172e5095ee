"""What each admin route needs; a route that is not listed needs the operator's ADMIN."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qs

from mediator.access.cache import AccessCache
from mediator.access.decision import Decision, Target, decide
from mediator.access.model import ANY, Principal, Scope

__all__ = ["NEEDS", "Need", "Of", "decide_admin", "need_of"]


class Of(Enum):
    """Over what a scope is needed."""

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
class Need:
    """A scope, and over what."""

    of: Of
    scope: Scope = Scope.ADMIN


_OPEN: Final = Need(Of.NOTHING)
_ANY_KEY: Final = Need(Of.ANYTHING)
_LOOK: Final = Need(Of.INSTALLATION, Scope.READ)
_OPERATE: Final = Need(Of.INSTALLATION)
_DESIGN: Final = Need(Of.DATABASE, Scope.SCHEMA)
_RUN: Final = Need(Of.DATABASE)
_TENANT: Final = Need(Of.TENANT)

NEEDS: Final[Mapping[str, Mapping[str, Need]]] = {
    "/startup": {"GET": _OPEN},
    "/live": {"GET": _OPEN},
    "/ready": {"GET": _OPEN},
    "/metrics": {"GET": _LOOK},
    "/openapi.json": {"GET": _ANY_KEY},
    "/docs": {"GET": _ANY_KEY},
    "/static/{digest}/{name:path}": {"GET": _ANY_KEY},
    "/": {"GET": _LOOK},
    "/map": {"GET": _LOOK},
    "/what-if": {"GET": _LOOK},
    "/coherence": {"GET": _LOOK},
    "/coherence/probe": {"POST": _OPERATE},
    "/coherence/probe/stop": {"POST": _OPERATE},
    "/data": {"GET": _LOOK},
    "/jobs": {"GET": _LOOK},
    "/jobs/{database}": {"POST": _LOOK},
    "/jobs/{database}/{run}": {"GET": _LOOK},
    "/jobs/{database}/{run}/cancel": {"POST": _LOOK},
    "/jobs/{database}/{run}/resume": {"POST": _LOOK},
    "/admin/v1/systems": {"GET": _LOOK, "POST": _OPERATE},
    "/admin/v1/systems/{name}": {"GET": _LOOK, "PATCH": _OPERATE, "DELETE": _OPERATE},
    "/admin/v1/systems/{name}/calibration": {"POST": _OPERATE},
    "/admin/v1/schemas": {"GET": _ANY_KEY},
    "/admin/v1/schemas/{database}": dict.fromkeys(("GET", "PUT", "PATCH", "DELETE"), _DESIGN),
    "/admin/v1/advice": {"POST": _LOOK},
    "/admin/v1/advice/scaling": {"GET": _LOOK},
    "/admin/v1/placements/{database}": {"GET": _DESIGN},
    "/admin/v1/placements/{database}/{class_name}": {"GET": _DESIGN},
    "/admin/v1/placements/{database}/{class_name}/{field}": {"GET": _DESIGN},
    "/admin/v1/what-if/{database}": {"POST": _DESIGN},
    "/admin/v1/violations": {"GET": _DESIGN},
    "/admin/v1/proposals": {"GET": _DESIGN},
    "/admin/v1/views": {"GET": _LOOK},
    "/admin/v1/views/{database}": {"GET": _DESIGN},
    "/admin/v1/views/{database}/verify": {"POST": _RUN},
    "/admin/v1/views/{database}/rebuild": {"POST": _RUN},
    "/admin/v1/integrity/{database}": {"POST": _RUN},
    "/admin/v1/probes/staleness": {"GET": _LOOK, "POST": _OPERATE, "DELETE": _OPERATE},
    "/admin/v1/sketch": {"GET": _DESIGN},
    "/admin/v1/tenants": {"GET": _LOOK},
    "/admin/v1/tenants/{tenant}": {"GET": _TENANT, "PUT": _OPERATE, "DELETE": _OPERATE},
    "/admin/v1/tenants/{tenant}/databases/{database}": {"PUT": _OPERATE, "DELETE": _OPERATE},
    "/admin/v1/tenants/{tenant}/keys": {"GET": _TENANT, "POST": _TENANT},
    "/admin/v1/tenants/{tenant}/keys/{key}": {"DELETE": _TENANT},
}
"""By path and method. SCHEMA over a database is what its owner designs and watches it with. Pages
show all databases; what one asks of the data API, it asks with the key of whoever looks at it.
"""


def _pattern(template: str) -> re.Pattern[str]:
    whole = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", template)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", whole))


_PATTERNS: Final = [(_pattern(template), needs) for template, needs in NEEDS.items()]


def need_of(method: str, path: str) -> tuple[Need, Mapping[str, str]]:
    """Find what a request needs, and the variables of its path."""
    for pattern, needs in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            method = "GET" if method == "HEAD" else method
            return needs.get(method, _OPERATE), match.groupdict()
    return _OPERATE, {}


def decide_admin(
    principal: Principal | None,
    need: Need,
    named: Mapping[str, str],
    query: bytes,
    book: AccessCache,
) -> Decision:
    """Decide about one request of the admin API.

    Args:
        principal: Who asks; None: nobody said.
        need: What it needs.
        named: The variables of the path.
        query: The query of the address.
        book: Tells who owns what.
    """
    if need.of is Of.NOTHING:
        return Decision.ALLOWED
    if principal is None:
        return Decision.UNAUTHENTICATED
    if need.of is Of.ANYTHING:
        return Decision.ALLOWED
    if need.of is Of.TENANT:
        return _over_tenant(principal, need.scope, named["tenant"])
    database = named.get("database") or _queried(query)
    if need.of is Of.DATABASE and database is not None:
        return decide(principal, need.scope, Target(database, book.owner(database)))
    reaches = principal.operates and _reaches(principal, need.scope)
    return Decision.ALLOWED if reaches else Decision.FORBIDDEN


def _over_tenant(principal: Principal, scope: Scope, tenant: str) -> Decision:
    if not principal.operates and principal.tenant != tenant:
        return Decision.HIDDEN
    return Decision.ALLOWED if _reaches(principal, scope) else Decision.FORBIDDEN


def _reaches(principal: Principal, scope: Scope) -> bool:
    """Whether a scope is granted over all databases of the tenant."""
    return any(grant.covers(scope, ANY, None) for grant in principal.grants)


def _queried(query: bytes) -> str | None:
    """Return the database that the query names; of two the route might take the other one."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("database", [])
    return given[0] if len(given) == 1 else None
