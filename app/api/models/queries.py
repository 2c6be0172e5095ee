"""The answer to a query; its grammar is that of `mediator.query`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from app.http.validation import Answer

__all__ = ["Listing"]


class Listing(Answer):
    """A page of objects, or of groups."""

    items: list[dict[str, Any]] = Field(
        description="Objects with their ids and what is joined to them, or groups."
    )
    next: str | None = Field(None, description="Cursor of the next page.")
    explain: dict[str, Any] = Field({})
    missing: list[str] = Field([], description="Ids of objects that are not there.")
