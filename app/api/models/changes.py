"""The change feed: parameters of a request, and a page of changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from app.api.models.common import NAME_SCHEMA
from app.http.validation import Answer, Parameters, WholeNumber

__all__ = ["Change", "Changes", "ChangesParameters"]

_POSITION: Final[dict[str, Any]] = {"maxLength": 512}


class ChangesParameters(Parameters):
    """What of the feed is asked for."""

    class_name: str | None = Field(
        None, alias="class", description="Changes of one class.", json_schema_extra=NAME_SCHEMA
    )
    after: str | None = Field(
        None, description="A position of the feed, or `beginning`.", json_schema_extra=_POSITION
    )
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Changes in a page at most.")
    wait: WholeNumber = Field(0, ge=0, le=30, description="Seconds to wait for the first change.")


class Change(Answer):
    """A change of one cache group of an object."""

    id: str
    database: str
    class_name: str = Field(alias="class")
    object: str
    group: str
    version: int
    kind: Literal["create", "replace", "update", "delete"]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    time: datetime


class Changes(Answer):
    """A page of changes, and the position after it."""

    changes: list[Change]
    position: str = Field(json_schema_extra=_POSITION)
