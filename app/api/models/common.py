"""Shared models of several routes: names, ids, cursors, problems, and references."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from app.http.problems import PROBLEM_TYPES
from app.http.validation import ResponseModel

__all__ = [
    "ID_SCHEMA",
    "NAME_SCHEMA",
    "RESULT_POSITION",
    "Count",
    "Cursor",
    "JsonObject",
    "Name",
    "ObjectId",
    "Problem",
    "RandomId",
    "RulePause",
    "Seconds",
    "StoredObject",
    "ref",
]

NAME_SCHEMA: Final[dict[str, Any]] = {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$"}
ID_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": "^[^/\\u0000-\\u001f\\u007f-\\u009f]+$",
    "not": {"enum": [".", ".."]},
}

RESULT_POSITION: Final = r"^[0-9]{1,15}(-[0-9a-f]{16})?$"
"""`str` of a `mediator.model.result_position.ResultPosition`."""

Name = Annotated[str, WithJsonSchema(NAME_SCHEMA)]
"""A name of a class; an invalid one is answered like an unknown one."""

ObjectId = Annotated[str, WithJsonSchema(ID_SCHEMA)]
"""An id of an object; `mediator.schema.ids` checks it."""

JsonObject = Annotated[Any, WithJsonSchema({"type": "object"})]
"""An object whose members depend on the class's schema."""

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
RandomId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Cursor = Annotated[str | None, Field(description="Cursor of the next page.")]


class RulePause(ResponseModel):
    """A pause by a rule of admission control: its number, and the version of the rules."""

    version: Count
    rule: Count
    seconds: float = Field(ge=0, description="Remaining time.")
    until: str = Field(json_schema_extra={"format": "date-time"})


class StoredObject(ResponseModel):
    """An object: its id, and the fields of the class."""

    id: ObjectId


class Location(ResponseModel):
    """The location of an error."""

    pointer: str
    detail: str


class Problem(ResponseModel):
    """A problem (RFC 9457)."""

    type: str = Field(json_schema_extra={"enum": [kind.uri for kind in PROBLEM_TYPES]})
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    instance: str | None = Field(None, description="The id of the request.")
    errors: list[Location] = Field([])


def ref(kind: str, name: str) -> dict[str, Any]:
    """Return a reference to a component of an OpenAPI document."""
    return {"$ref": f"#/components/{kind}/{name}"}
