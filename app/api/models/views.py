"""Incremental views: parameters and answers; `mediator.views.parser` parses views."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.api.models.common import JsonObject, RandomId
from app.http.validation import Parameters, ResponseModel, WholeNumber

__all__ = [
    "DELTA",
    "DeltasParameters",
    "IncrementalView",
    "IncrementalViewReport",
    "IncrementalViews",
    "ViewDeltas",
    "ViewResult",
]

DELTA = r"^[0-9]{1,16}-[0-9]{1,16}$"
_Delta = Annotated[str, Field(pattern=DELTA)]


class DeltasParameters(Parameters):
    """Which deltas of a view are requested."""

    after: str | None = Field(None, description="The id of a delta.", pattern=DELTA)
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Deltas in a page at most.")
    wait: WholeNumber = Field(0, ge=0, le=30, description="Seconds to wait for the first delta.")


class IncrementalView(ResponseModel):
    """An incremental view."""

    id: RandomId
    name: str
    state: Literal["building", "ready", "stopped"]
    detail: str | None = Field(None, description="Why it was stopped.")


class IncrementalViews(ResponseModel):
    """The incremental views of a database."""

    items: list[IncrementalView]


class IncrementalViewReport(IncrementalView):
    """An incremental view as it was sent, and its state."""

    view: JsonObject


class CountedRow(ResponseModel):
    """A row and its multiplicity."""

    row: JsonObject
    count: int


class ViewResult(ResponseModel):
    """The result of a view at a position of the feed."""

    items: list[CountedRow]
    position: str = Field(description="It includes every change up to this position of the feed.")
    delta: _Delta = Field(description="The last delta that it includes.")


class ViewDelta(ResponseModel):
    """The change of a result up to a position of the feed."""

    id: _Delta
    position: str
    rows: list[CountedRow] = Field(
        description="Rows that are added or, with negative counts, removed."
    )


class ViewDeltas(ResponseModel):
    """A page of deltas."""

    deltas: list[ViewDelta]
    delta: _Delta = Field(description="`after` of the next page.")
