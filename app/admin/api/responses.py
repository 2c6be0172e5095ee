"""Dependencies and documentation that the admin routes share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.api.models.common import NAME_SCHEMA, Problem
from app.http.framework import json_body
from app.http.problems import INVALID, PROBLEM_JSON, HttpError
from mediator.base.errors import Conflict, Location
from mediator.control.plane import ControlPlane
from mediator.schema.ids import FIELD_NAME
from mediator.schema.validation import json_schema_of

__all__ = [
    "NAME",
    "PROBLEM",
    "Control",
    "Document",
    "DryRun",
    "FieldName",
    "IfMatch",
    "JsonBody",
    "Name",
    "OfDatabase",
    "SequenceNumber",
    "component",
    "json_request",
    "version_of",
]

PROBLEM: Final[dict[str, Any]] = {
    "description": "A problem (RFC 9457)",
    "content": {PROBLEM_JSON: {"schema": json_schema_of(TypeAdapter(Problem))}},
}

SequenceNumber = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""The number of a version or of a log entry: the catalogue counts in 64 bits."""


class Document(BaseModel):
    """A body of a request, or a part of one; unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


_VERSION: Final = re.compile(r"[0-9]{1,18}")
"""Versions that the catalogue can compare: it counts them in 64 bits."""


def component(name: str, missing: str) -> Any:
    """Return a dependency: a component of the service, or the problem (409) that it is missing."""

    def find(request: Request) -> Any:
        value = getattr(request.app.state, name)
        if value is None:
            raise Conflict(missing)
        return value

    return Depends(find)


def _control(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control
    return plane


NAME: Final[str] = NAME_SCHEMA["pattern"]

Control = Annotated[ControlPlane, Depends(_control)]
JsonBody = Annotated[Any, Depends(json_body)]
Name = Annotated[str, Path(pattern=NAME)]
FieldName = Annotated[str, Path(pattern=f"^{FIELD_NAME.pattern}$")]
OfDatabase = Annotated[str | None, Query(pattern=NAME)]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="Version seen, as an ETag.")]
DryRun = Annotated[bool, Query(description="Only return what would happen.")]


def json_request(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Document a request body that the route itself parses."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def version_of(if_match: str | None) -> int | None:
    """Return the version that If-Match names; None: any. Raises `HttpError`."""
    if if_match is None:
        return None
    text = if_match.strip().strip('"')
    if not _VERSION.fullmatch(text):
        location = Location("If-Match", 'is an ETag of this resource, such as "3"')
        raise HttpError(INVALID, "The version is not understood.", locations=[location])
    return int(text)
