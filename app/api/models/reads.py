"""Parameters and answers of listings, filtered writes, feed, sketch, imports and exports."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from app.api.models.common import ID_SCHEMA, NAME_SCHEMA, Count, Problem
from app.http.validation import Parameters, ResponseModel, WholeNumber

__all__ = [
    "Change",
    "Changes",
    "ChangesParameters",
    "ClientFilter",
    "DocumentParameters",
    "ExportParameters",
    "ImportParameters",
    "ImportSummary",
    "Listing",
    "SketchParameters",
    "WriteSummary",
]

_POSITION: Final[dict[str, Any]] = {"maxLength": 512}
_CLASS_NAMES: Final[dict[str, Any]] = {"pattern": "^[a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*$"}


class Listing(ResponseModel):
    """A page of objects, or of groups."""

    items: list[dict[str, Any]] = Field(
        description="Objects with their ids and joined objects, or groups."
    )
    next: str | None = Field(None, description="Cursor of the next page.")
    total: Count | None = Field(None, description="Objects on all pages; only if count is given.")
    count: Literal["exact", "estimated"] | None = Field(
        None, description="How the total was determined."
    )
    explain: dict[str, Any] = Field({})
    missing: list[str] = Field([], description="Ids of objects that do not exist.")


class ChangesParameters(Parameters):
    """Which changes of the feed are requested."""

    class_name: str | None = Field(
        None, alias="class", description="Changes of one class.", json_schema_extra=NAME_SCHEMA
    )
    after: str | None = Field(
        None, description="A position of the feed, or `beginning`.", json_schema_extra=_POSITION
    )
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Changes in a page at most.")
    wait: WholeNumber = Field(0, ge=0, le=30, description="Seconds to wait for the first change.")


class Change(ResponseModel):
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


class Changes(ResponseModel):
    """A page of changes, and the position after it."""

    changes: list[Change]
    position: str = Field(json_schema_extra=_POSITION)


class SketchParameters(Parameters):
    """The classes whose filters are united."""

    class_names: str | None = Field(
        None,
        alias="class",
        description="Classes whose filters are united; all classes unless given.",
        json_schema_extra=_CLASS_NAMES,
    )


class DocumentParameters(Parameters):
    """The classes that a document describes."""

    class_names: str | None = Field(
        None,
        alias="class",
        description="Classes that are described; all readable classes unless given.",
        json_schema_extra=_CLASS_NAMES,
    )


class ClientFilter(ResponseModel):
    """The filter that tells a client which of its copies to revalidate."""

    version: Count
    hash: Count = 0
    k: Count
    seed: Count = 0
    m: Count
    time_us: Count
    valid_for_ms: Count
    revision: str = Field("", pattern="^[0-9]{1,20}$")
    revalidate_all: bool = False
    generation: str = Field(pattern="^[0-9a-f]{32}$")
    map: dict[str, dict[str, list[str]]]
    bits: str = Field(json_schema_extra={"contentEncoding": "base64"})


class ImportParameters(Parameters):
    """The start of an import."""

    skip: WholeNumber = Field(0, ge=0, le=2**53, description="Lines done already.")


class ExportParameters(Parameters):
    """The start and the fields of an export."""

    after: str | None = Field(
        None, description="The last id that was received.", json_schema_extra=ID_SCHEMA
    )
    fields: str | None = Field(
        None,
        description="Fields, sorted and once each.",
        json_schema_extra={"pattern": "^[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*$"},
    )


class ImportSummary(ResponseModel):
    """The result of an import."""

    imported: Count
    failed: Count
    next: int = Field(description="Lines done; skip them to continue.")
    problems: list[Problem] = Field(max_length=100)


class WriteSummary(ResponseModel):
    """The result of a write to all objects that meet conditions."""

    matched: Count = Field(description="Objects that met the conditions.")
    written: Count
    failed: Count
    next: str | None = Field(description="Continue after this id; null if all objects are done.")
    sample: list[str] = Field(max_length=5, description="Ids that would be written.")
    problems: list[Problem] = Field(max_length=100)
