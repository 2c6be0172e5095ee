"""The reference of an API: its OpenAPI document as a page that loads nothing and runs nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader

__all__ = ["serve_reference"]

_HERE: Final = Path(__file__).parent / "templates"
_STYLE: Final = (_HERE / "reference.css").read_text()
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_HEADERS: Final = {
    # The style is the only thing that the page needs; CSP Level 3, section 6.7.2.3.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none';"
    f" style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """A method of a path, with what it refers to in place."""

    method: str
    path: str
    summary: str
    description: str
    parameters: list[dict[str, Any]]
    bodies: dict[str, Any]
    responses: dict[str, Any]

    @property
    def anchor(self) -> str:
        """Where the page has it."""
        return f"{self.method} {self.path}".replace(" ", "-")


def serve_reference(app: FastAPI) -> None:
    """Serve the reference of an application at ``/docs``."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = lambda value, indent=None: json.dumps(value, indent=indent)
    environment.filters["last_of"] = _last_of
    template = environment.get_template("reference.html")

    @cache
    def page() -> str:
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


def _operations(document: dict[str, Any]) -> list[_Operation]:
    return [
        _operation(document, path, method, item)
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]


def _operation(
    document: dict[str, Any], path: str, method: str, item: dict[str, Any]
) -> _Operation:
    operation = item[method]
    body = _resolved(document, operation.get("requestBody", {}))
    parameters = [*item.get("parameters", []), *operation.get("parameters", [])]
    responses = operation.get("responses", {})
    return _Operation(
        method.upper(),
        path,
        operation.get("summary", ""),
        operation.get("description", ""),
        [_resolved(document, parameter) for parameter in parameters],
        body.get("content", {}),
        {status: _resolved(document, response) for status, response in responses.items()},
    )


def _resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference to a component stands for; anything else as it is."""
    if "$ref" not in node:
        return node
    kind, name = node["$ref"].split("/")[-2:]
    found: dict[str, Any] = document["components"][kind][name]
    return found


def _last_of(reference: str) -> str:
    return reference.rpartition("/")[2]
