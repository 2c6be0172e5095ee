"""Dependencies and documentation that the admin routes share."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request
from pydantic import TypeAdapter

from app.api.models.common import Problem
from app.http.framework import json_body
from app.http.problems import PROBLEM_JSON
from mediator.base.errors import Conflict
from mediator.control.plane import ControlPlane
from mediator.schema.validation import json_schema_of

__all__ = [
    "PROBLEM",
    "Body",
    "Control",
    "DatabaseName",
    "DryRun",
    "OfDatabase",
    "SystemName",
    "json_request",
    "part",
]

PROBLEM: Final[dict[str, Any]] = {
    "description": "A problem (RFC 9457)",
    "content": {PROBLEM_JSON: {"schema": json_schema_of(TypeAdapter(Problem))}},
}


def part(name: str, missing: str) -> Any:
    """Return a dependency: a part of the service, or the problem (409) that it is missing."""

    def find(request: Request) -> Any:
        found = getattr(request.app.state, name)
        if found is None:
            raise Conflict(missing)
        return found

    return Depends(find)


def _control(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control
    return plane


_NAME: Final = r"^[a-z][a-z0-9_]{0,62}$"

Control = Annotated[ControlPlane, Depends(_control)]
Body = Annotated[Any, Depends(json_body)]
DatabaseName = Annotated[str, Path(pattern=_NAME)]
OfDatabase = Annotated[str | None, Query(pattern=_NAME)]
SystemName = Annotated[str, Path(pattern=_NAME)]
DryRun = Annotated[bool, Query(description="Only say what would happen.")]


def json_request(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Document a body that a route reads by itself."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
