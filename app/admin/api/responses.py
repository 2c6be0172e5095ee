"""Dependencies and responses that the admin routes share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from app.http.framework import json_body
from app.http.problems import PROBLEM_JSON
from mediator.control.plane import ControlPlane

__all__ = ["PROBLEM", "Body", "Control", "DatabaseName", "DryRun", "SystemName", "json_request"]

PROBLEM: dict[str, Any] = {
    "description": "A problem (RFC 9457)",
    "content": {
        PROBLEM_JSON: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "instance": {"type": "string"},
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["pointer", "detail"],
                            "properties": {
                                "pointer": {"type": "string"},
                                "detail": {"type": "string"},
                            },
                        },
                    },
                },
            }
        }
    },
}


def _control(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control
    return plane


Control = Annotated[ControlPlane, Depends(_control)]
Body = Annotated[Any, Depends(json_body)]
DatabaseName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
SystemName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
DryRun = Annotated[bool, Query(description="Only say what would happen.")]


def json_request(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Document a body that a route reads by itself."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
