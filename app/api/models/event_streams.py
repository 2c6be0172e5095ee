"""Event streams: parameters and answers; `mediator.event_streams` has the bodies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.api.models.common import Count, Name
from app.http.validation import Parameters, ResponseModel, WholeNumber

__all__ = [
    "AppendedTuples",
    "EventStream",
    "EventStreamReport",
    "EventStreamTuples",
    "EventStreams",
    "TuplesParameters",
]

_Type = Literal["string", "integer", "float", "boolean"]
_Scalar = str | int | float | bool | None
_Number = Annotated[int, Field(ge=1)]


class TuplesParameters(Parameters):
    """Which tuples of a stream are requested."""

    after: WholeNumber | None = Field(
        None, ge=0, description="The number of a tuple; unless given, all stored tuples."
    )
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Tuples in a page at most.")
    wait: WholeNumber = Field(0, ge=0, le=30, description="Seconds to wait for the first tuple.")


class EventStream(ResponseModel):
    """An event stream as it was declared."""

    name: Name
    attributes: dict[str, _Type | None]
    retention_s: Annotated[float, Field(gt=0)]
    most_tuples: _Number


class EventStreams(ResponseModel):
    """The event streams of a database."""

    items: list[EventStream]


class StreamConsumer(ResponseModel):
    """The progress of a consumer."""

    name: str
    number: Count
    behind: Count


class EventStreamReport(EventStream):
    """An event stream, its stored tuples and its consumers."""

    first: _Number = Field(description="The number of the oldest stored tuple; `last` + 1 if none.")
    last: Count = Field(description="The number of the last tuple; 0 before the first one.")
    tuples: Count = Field(description="How many are stored.")
    bytes: Count = Field(description="Size of the stored tuples, as JSON.")
    rate: Annotated[float, Field(ge=0)] = Field(description="Recent tuples per second.")
    consumers: list[StreamConsumer]


class AppendedTuples(ResponseModel):
    """The numbers of the tuples of a batch."""

    first: _Number
    last: _Number


class EventStreamTuple(ResponseModel):
    """A tuple with its number, and its time in seconds since 1970."""

    number: _Number
    time_s: float
    values: dict[str, _Scalar]


class EventStreamTuples(ResponseModel):
    """A page of tuples."""

    tuples: list[EventStreamTuple]
    position: Count = Field(description="`after` of the next page.")
