"""The request of a staleness probe, and one measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, TypeAdapter

from mediator.base.errors import Location
from mediator.schema.validation import (
    Name,
    Number,
    Omissible,
    Positive,
    document,
    parse_document,
    refuse,
)

__all__ = ["PROBE_REQUEST", "Measurement", "ProbePlan", "ProbeRequest", "read_request"]

_MAX_TIMEOUT_S: Final = 60.0
_MAX_DURATION_S: Final = 600.0
"""Seconds within which all measurements must begin."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How often to measure: `rate` measurements begin per second, each has `timeout_s`."""

    count: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 100
    rate: Annotated[
        Positive,
        Field(
            le=100.0,
            description="Measurements in a second; all must begin within"
            f" {_MAX_DURATION_S:g} seconds.",
        ),
    ] = 10.0
    timeout_s: Annotated[Positive, Field(le=_MAX_TIMEOUT_S)] = 10.0

    @property
    def max_duration_s(self) -> float:
        """Seconds after which no measurement begins, however long earlier ones took."""
        return self.count / self.rate + self.timeout_s


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest(ProbePlan):
    """The target of a probe, and how often to measure."""

    database: Name
    class_name: Annotated[Name, Field(alias="class")]
    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2_048,
            description="Where reads go: fresh, to the systems; view; or the URL of a cache in"
            " PORTOLAN_PROBE_CACHES.",
        ),
    ] = "fresh"
    delta_s: Annotated[
        Omissible[Annotated[Positive, Field(le=_MAX_TIMEOUT_S)]],
        Field(
            description="Through a cache: read with a coherent client that allows itself this"
            " staleness; without it, as anyone does who knows nothing of the filter."
        ),
    ] = None
    bound_s: Annotated[
        Annotated[Number, Field(ge=0)] | None,
        Field(description="The bound that reads are held against; null: the path's declared one."),
    ] = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """Bounds of the time for which a write was not seen.

    Attributes:
        lower_s: From the acknowledgement until the last stale read was sent; 0 if none was stale.
        upper_s: From sending the write until the first fresh read was received; None if none came
            in time.
    """

    lower_s: float
    upper_s: float | None


def _check_duration(request: ProbeRequest) -> ProbeRequest:
    if request.count > request.rate * _MAX_DURATION_S:
        detail = f"takes more than {_MAX_DURATION_S:g} seconds at this rate"
        refuse([Location("/count", detail)])
    return request


PROBE_REQUEST: Final[TypeAdapter[ProbeRequest]] = TypeAdapter(
    Annotated[ProbeRequest, AfterValidator(_check_duration)]
)


def read_request(document: Any) -> ProbeRequest:
    """Parse a request in JSON form.

    Raises:
        Invalid: A member is missing, unknown, or beyond its limit; with all locations.
    """
    return parse_document(PROBE_REQUEST, document)
