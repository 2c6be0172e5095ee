"""The reference of an API: its OpenAPI document as a static page without scripts."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader

__all__ = ["serve_reference"]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_STYLE: Final = (_TEMPLATES / "reference.css").read_text()
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_HEADERS: Final = {
    # The page needs only its style sheet; CSP Level 3, section 6.7.2.3.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none';"
    f" style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve_reference(app: FastAPI) -> None:
    """Serve the reference of an application at ``/docs``."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = lambda value, indent=None: json.dumps(value, indent=indent)
    environment.filters["last_of"] = lambda reference: reference.rpartition("/")[2]

    @cache
    def page() -> str:
        template = environment.get_template("reference.html")  # compiled on the first request
        document = app.openapi()
        return template.render(
            info=document["info"],
            schemas=document.get("components", {}).get("schemas", {}),
            operations=_operations(document),
            style=_STYLE,
            address=app.openapi_url,
        )

    @app.get("/docs", include_in_schema=False)
    async def show() -> Response:
        return HTMLResponse(page(), headers=_HEADERS)


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all operations, with references resolved."""
    return [
        _operation(document, path, method, item)
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]


def _operation(
    document: dict[str, Any], path: str, method: str, item: dict[str, Any]
) -> dict[str, Any]:
    operation = item[method]
    parameters = [*item.get("parameters", []), *operation.get("parameters", [])]
    responses = operation.get("responses", {})
    return {
        **operation,
        "method": method.upper(),
        "path": path,
        "anchor": f"{method.upper()}-{path}",
        "parameters": [_resolved(document, parameter) for parameter in parameters],
        "bodies": _resolved(document, operation.get("requestBody", {})).get("content", {}),
        "responses": {
            status: _resolved(document, response) for status, response in responses.items()
        },
    }


def _resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the component that a reference names; any other node unchanged."""
    if "$ref" not in node:
        return node
    kind, name = node["$ref"].split("/")[-2:]
    component: dict[str, Any] = document["components"][kind][name]
    return component
