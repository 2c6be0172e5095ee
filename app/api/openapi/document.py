"""The paths of the data API in OpenAPI 3.1."""

from __future__ import annotations

import re
from typing import Any, Final

from app.api.models.common import ref
from app.api.openapi.object_paths import object_paths
from app.api.openapi.operations import empty, operation, parameters_named
from app.api.openapi.resource_paths import resource_paths

__all__ = ["data_paths"]

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_PINNABLE: Final = (
    "/v1/{database}/{class}/{id}",
    "/v1/{database}/{class}",
    "/v1/{database}/{class}/query",
    "/v1/{database}/{class}/import",
    "/v1/{database}/{class}/export",
    "/v1/{database}/batch",
    "/v1/{database}/transactions",
    "/v1/{database}/changes",
)


def data_paths() -> dict[str, Any]:
    summary = "Return the methods of this path"
    options = operation(None, summary, {204: empty("Allow")}, problems=(400, 404))
    paths = object_paths() | resource_paths()
    pinnable = {path: _pinnable(paths[path]) for path in _PINNABLE}
    return {
        path: {
            "parameters": parameters_named(_VARIABLE.findall(path)),
            **methods,
            "options": options,
        }
        for path, methods in (paths | pinnable).items()
    }


def _pinnable(methods: dict[str, Any]) -> dict[str, Any]:
    """Add the parameter that pins requests to a version of the schema, and its 410 if retired."""
    pinned, retired = parameters_named(["schemaVersion"]), {"410": ref("responses", "410")}
    return {
        method: {
            **described,
            "parameters": [*described["parameters"], *pinned],
            "responses": dict(sorted((described["responses"] | retired).items())),
        }
        for method, described in methods.items()
    }
