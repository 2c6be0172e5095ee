"""The permissions that the routes of the admin port require; by default the operator's ADMIN."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from mediator.access.decision import Extent, Permission
from mediator.access.model import Scope

__all__ = ["PERMISSIONS", "database_of", "permission_of"]

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
    "/systems": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/systems/{name}/calibrate": {"POST": _OPERATOR},
    "/systems/{name}/metrics": {"POST": _OPERATOR},
    "/systems/{name}/declared": {"POST": _OPERATOR},
    "/systems/{name}/use": {"POST": _OPERATOR},
    "/systems/{name}/remove": {"POST": _OPERATOR},
    "/map": {"GET": _READ_ALL},
    "/map/override": {"POST": _OPERATOR},
    "/schema": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/schema/drop": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/what-if": {"GET": _READ_ALL},
    "/coherence": {"GET": _READ_ALL},
    "/coherence/probe": {"POST": _OPERATOR},
    "/coherence/probe/stop": {"POST": _OPERATOR},
    "/data": {"GET": _READ_ALL},
    "/data/object": {"GET": _READ_ALL, "POST": _READ_ALL},
    "/data/new": {"GET": _READ_ALL, "POST": _READ_ALL},
    "/queries": {"GET": _READ_ALL},
    "/feed": {"GET": _READ_ALL},
    "/streams": {"GET": _READ_ALL},
    "/streams/{database}/plan.svg": {"GET": _READ_ALL},
    "/jobs": {"GET": _READ_ALL},
    "/jobs/{database}": {"GET": _READ_ALL, "POST": _READ_ALL},
    "/jobs/{database}/{run}": {"GET": _READ_ALL},
    "/jobs/{database}/{run}/cancel": {"POST": _READ_ALL},
    "/jobs/{database}/{run}/resume": {"POST": _READ_ALL},
    "/admission": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/keys": {"GET": _OPERATOR, "POST": _OPERATOR},
    "/keys/{tenant}/limits": {"POST": _OPERATOR},
    "/keys/{tenant}/databases": {"POST": _OPERATOR},
    "/keys/{tenant}/keys": {"POST": _OPERATOR},
    "/keys/{tenant}/revoke": {"POST": _OPERATOR},
    "/keys/{tenant}/remove": {"POST": _OPERATOR},
    "/admin/v1/systems": {"GET": _READ_ALL, "POST": _OPERATOR},
    "/admin/v1/systems/{name}": {"GET": _READ_ALL, "PATCH": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/systems/{name}/calibration": {"POST": _OPERATOR},
    "/admin/v1/systems/{name}/moves": {"GET": _READ_ALL},
    "/admin/v1/schemas": {"GET": _ANY_KEY},
    "/admin/v1/schemas/{database}": dict.fromkeys(
        ("GET", "PUT", "PATCH", "DELETE"), _SCHEMA_OF_DATABASE
    ),
    "/admin/v1/schemas/{database}/index-builds": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/schemas/{database}/revisions": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/schemas/{database}/revisions/{version}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/schemas/{database}/pinned-versions": {
        "GET": _SCHEMA_OF_DATABASE,
        "PUT": _SCHEMA_OF_DATABASE,
    },
    "/admin/v1/advice": {"POST": _READ_ALL},
    "/admin/v1/advice/scaling": {"GET": _READ_ALL},
    "/admin/v1/placements/{database}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/placements/{database}/{class_name}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/placements/{database}/{class_name}/{field}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/overrides/{database}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/overrides/{database}/{class_name}": {"PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/overrides/{database}/{class_name}/{field}": {"PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/what-if/{database}": {"POST": _SCHEMA_OF_DATABASE},
    "/admin/v1/violations": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/proposals": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/views": {"GET": _READ_ALL},
    "/admin/v1/views/{database}": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/views/{database}/verify": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/views/{database}/rebuild": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/integrity/{database}": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/integrity/{database}/{class_name}/{field}": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/copies/{database}": {"POST": _ADMIN_OF_DATABASE},
    "/admin/v1/probes/staleness": {"GET": _READ_ALL, "POST": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/sketch": {"GET": _SCHEMA_OF_DATABASE},
    "/admin/v1/admission/rules": {"GET": _READ_ALL, "PUT": _OPERATOR},
    "/admin/v1/admission/dry-run": {"POST": _READ_ALL},
    "/admin/v1/admission/log": {"GET": _READ_ALL},
    "/admin/v1/clusters": {"GET": _READ_ALL},
    "/admin/v1/clusters/{cluster}": {"GET": _READ_ALL, "PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/clusters/{cluster}/relocations": {"POST": _OPERATOR},
    "/admin/v1/clusters/{cluster}/relocations/{relocation}": {"DELETE": _OPERATOR},
    "/admin/v1/costly-queries": {"GET": _READ_ALL},
    "/admin/v1/tenants": {"GET": _READ_ALL},
    "/admin/v1/tenants/{tenant}": {"GET": _ADMIN_OF_TENANT, "PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/tenants/{tenant}/databases/{database}": {"PUT": _OPERATOR, "DELETE": _OPERATOR},
    "/admin/v1/tenants/{tenant}/keys": {"GET": _ADMIN_OF_TENANT, "POST": _ADMIN_OF_TENANT},
    "/admin/v1/tenants/{tenant}/keys/{key}": {"DELETE": _ADMIN_OF_TENANT},
}
"""By path and method. SCHEMA over a database lets its owner design and monitor it. Pages show all
databases; a page calls the data API with the viewer's key.
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


def database_of(variables: Mapping[str, str], query: bytes) -> str | None:
    """Return the database that a path or a query names.

    None if the query names several, as the route could use another one.
    """
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("database", [])
    return variables.get("database") or (names[0] if len(names) == 1 else None)
