"""The permissions that the routes of the admin port require; by default the operator's ADMIN."""

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

__all__ = ["PERMISSIONS", "Extent", "Permission", "decide_admin", "permission_of"]


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


_OPEN: Final = Permission(Extent.NOTHING)
_ANY_KEY: Final = Permission(Extent.ANYTHING)
_READ_ALL: Final = Permission(Extent.INSTALLATION, Scope.READ)
_OPERATOR: Final = Permission(Extent.INSTALLATION)
_SCHEMA_OF_DATABASE: Final = Permission(Extent.DATABASE, Scope.SCHEMA)
_ADMIN_OF_DATABASE: Final = Permission(Extent.DATABASE)
_ADMIN_OF_TENANT: Final = Permission(Extent.TENANT)

PERMISSIONS: Final[Mapping[str, Mapping[str, Permission]]] = {
    "/startup": {"GET": _OPEN},
    "/live": {"GET": _OPEN},
    "/ready": {"GET": _OPEN},
    "/metrics": {"GET": _READ_ALL},
    "/openapi.json": {"GET": _ANY_KEY},
    "/docs": {"GET": _ANY_KEY},
    "/static/{digest}/{name:path}": {"GET": _ANY_KEY},
    "/": {"GET": _READ_ALL},
    "/map": {"GET": _READ_ALL},
    "/what-if": {"GET": _READ_ALL},
    "/coherence": {"GET": _READ_ALL},
    "/coherence/probe": {"POST": _OPERATOR},
    "/coherence/probe/stop": {"POST": _OPERATOR},
    "/data": {"GET": _READ_ALL},
    "/jobs": {"GET": _READ_ALL},
    "/jobs/{database}": {"POST": _READ_ALL},
    "/jobs/{database}/{run}": {"GET": _READ_ALL},
    "/jobs/{database}/{run}/cancel": {"POST": _READ_ALL},
    "/jobs/{database}/{run}/resume": {"POST": _READ_ALL},
    "/admin/v1/systems": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/admin/v1/systems/{name}": {"GET": _READ_ALL, "PATCH": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/systems/{name}/calibration": {"POST": _OPERATOR},
    "/admin/v1/schemas": {"GET": _ANY_KEY},
    "/admin/v1/schemas/{database}": dict.fromkeys(
        ("GET", "PUT", "PATCH", "DELETE"), _SCHEMA_OF_DATABASE
    ),
    "/admin/v1/advice": {"POST": _READ_ALL},
    "/admin/v1/advice/scaling": {"GET": _READ_ALL},
    "/admin/v1/placements/{database}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/placements/{database}/{class_name}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/placements/{database}/{class_name}/{field}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/what-if/{database}": {"POST": _SCHEMA_OF_DATABASE},
    "/admin/v1/violations": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/proposals": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/views": {"GET": _READ_ALL},
    "/admin/v1/views/{database}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/views/{database}/verify": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/views/{database}/rebuild": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/integrity/{database}": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/probes/staleness": {"GET": _READ_ALL, "POST": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/sketch": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/tenants": {"GET": _READ_ALL},
    "/admin/v1/tenants/{tenant}": {"GET": _ADMIN_OF_TENANT, "PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/tenants/{tenant}/databases/{database}": {"PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/tenants/{tenant}/keys": {"GET": _ADMIN_OF_TENANT, "POST": _ADMIN_OF_TENANT},
    "/admin/v1/tenants/{tenant}/keys/{key}": {"DELETE": _ADMIN_OF_TENANT},
}
"""By path and method. SCHEMA over a database is what its owner designs and watches it with. Pages
show all databases; what one asks of the data API, it asks with the key of whoever looks at it.
"""


def _pattern(template: str) -> re.Pattern[str]:
    pattern = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", template)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern))


_PATTERNS: Final = [(_pattern(template), by_method) for template, by_method in PERMISSIONS.items()]


def permission_of(method: str, path: str) -> tuple[Permission, Mapping[str, str]]:
    """Return the permission that a request requires, and the variables of its path."""
    for pattern, by_method in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            method = "GET" if method == "HEAD" else method
            return by_method.get(method, _OPERATOR), match.groupdict()
    return _OPERATOR, {}


def decide_admin(
    principal: Principal | None,
    permission: Permission,
    variables: Mapping[str, str],
    query: bytes,
    access_cache: AccessCache,
) -> Decision:
    """Decide about one request of the admin API.

    Args:
        principal: Who asks; None: nobody said.
        permission: What the route requires.
        variables: The variables of the path.
        query: The query of the address.
        access_cache: Tells who owns what.
    """
    if permission.extent is Extent.NOTHING:
        return Decision.ALLOWED
    if principal is None:
        return Decision.UNAUTHENTICATED
    if permission.extent is Extent.ANYTHING:
        return Decision.ALLOWED
    if permission.extent is Extent.TENANT:
        return _over_tenant(principal, permission.scope, variables["tenant"])
    database = variables.get("database") or _queried(query)
    if permission.extent is Extent.DATABASE and database is not None:
        return decide(principal, permission.scope, Target(database, access_cache.owner(database)))
    reaches = principal.operates and _reaches(principal, permission.scope)
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
