"""Import and export: their parameters, and the summary of an import."""

from __future__ import annotations

from pydantic import Field

from app.api.models.common import ID_SCHEMA, Count, Problem
from app.http.validation import Answer, Parameters, WholeNumber

__all__ = ["ExportParameters", "ImportParameters", "ImportSummary"]


class ImportParameters(Parameters):
    """Where an import begins."""

    skip: WholeNumber = Field(0, ge=0, le=2**53, description="Lines done already.")


class ExportParameters(Parameters):
    """Where an export begins, and what it shows."""

    after: str | None = Field(
        None, description="The last id that was received.", json_schema_extra=ID_SCHEMA
    )
    fields: str | None = Field(
        None,
        description="Fields, sorted and once each.",
        json_schema_extra={"pattern": "^[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*$"},
    )


class ImportSummary(Answer):
    """What became of an import."""

    imported: Count
    failed: Count
    next: int = Field(description="Lines done; skip them to go on.")
    problems: list[Problem] = Field(max_length=100)
