"""The request of a staleness probe, and one measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean

__all__ = [
    "MAX_COUNT",
    "MAX_DURATION_S",
    "MAX_RATE",
    "MAX_TIMEOUT_S",
    "Measurement",
    "ProbePlan",
    "ProbeRequest",
    "read_request",
]

LONGEST_TEXT: Final = 2_048
MAX_COUNT: Final = 10_000
MAX_RATE: Final = 100.0
MAX_TIMEOUT_S: Final = 60.0
MAX_DURATION_S: Final = 600.0
_MEMBERS: Final = (
    *("database", "class", "path", "count", "rate", "timeout_s"),
    *("delta_s", "bound_s"),
)
"""Seconds in which all measurements must have begun."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How often to measure: `rate` measurements begin in a second, each has `timeout_s`."""

    count: int = 100
    rate: float = 10.0
    timeout_s: float = 10.0

    @property
    def longest_s(self) -> float:
        """Seconds after which no measurement begins, however long the others have taken."""
        return self.count / self.rate + self.timeout_s


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The request of a client.

    Attributes:
        path: Where reads go: ``fresh``, to the systems; ``view``; or the URL of a cache.
        delta_s: Through a cache: read with our own client, which allows itself this staleness.
            None: read as anyone does who knows nothing of the filter.
        bound_s: The bound that reads are held against; None: the declared one of the path.
    """

    database: str
    class_name: str
    path: str
    plan: ProbePlan
    delta_s: float | None = None
    bound_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """For how long a write was not seen: an interval, since no more can be known.

    Attributes:
        lower_s: From the acknowledgement until the last stale read was sent; 0 if none was stale.
        upper_s: From the sending of the write until the first fresh read was received; None if
            none came in time.
        stale_reads: How many there were.
    """

    lower_s: float
    upper_s: float | None
    stale_reads: int


def read_request(document: Any) -> ProbeRequest:
    """Read a request in JSON form.

    Raises:
        Invalid: A member is missing, unknown, or beyond its limit; with all locations.
    """
    if not isinstance(document, Mapping):
        raise Invalid("A probe is a JSON object.", locations=[Location("", "must be an object")])
    reading = _Reading(dict(document))
    request = ProbeRequest(
        database=reading.text("database"),
        class_name=reading.text("class"),
        path=reading.text("path", "fresh"),
        plan=ProbePlan(
            count=int(reading.number("count", 100, MAX_COUNT, whole=True)),
            rate=reading.number("rate", 10.0, MAX_RATE),
            timeout_s=reading.number("timeout_s", 10.0, MAX_TIMEOUT_S),
        ),
        delta_s=reading.number("delta_s", 0, MAX_TIMEOUT_S) if "delta_s" in document else None,
        bound_s=reading.bound("bound_s"),
    )
    if request.plan.count > request.plan.rate * MAX_DURATION_S:
        reading.wrong("count", f"takes more than {MAX_DURATION_S:g} seconds at this rate")
    reading.finish()
    return request


@dataclass(eq=False)
class _Reading:
    """Takes members out of an object, and notes what is wrong with them."""

    _left: dict[str, Any]
    _mistakes: list[Location] = field(default_factory=list)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, default)
        if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT:
            return value
        self.wrong(name, f"must be a string of at most {LONGEST_TEXT} characters")
        return ""

    def number(self, name: str, default: float, most: float, *, whole: bool = False) -> float:
        value, kinds = self._left.pop(name, default), (int,) if whole else (int, float)
        if type(value) in kinds and 0 < value <= most:
            return float(value)
        what = "a whole number" if whole else "a number"
        self.wrong(name, f"must be {what} above 0 and at most {most:g}")
        return default

    def bound(self, name: str) -> float | None:
        value = self._left.pop(name, None)
        if value is None or (type(value) in {int, float} and isfinite(value) and value >= 0):
            return None if value is None else float(value)
        self.wrong(name, "must be a number that is not negative")
        return None

    def finish(self) -> None:
        for name in self._left:
            self.wrong(str(name)[:100], f"is not known{did_you_mean(name, _MEMBERS)}")
        if self._mistakes:
            raise Invalid("The probe cannot be carried out as described.", locations=self._mistakes)

    def wrong(self, name: str, detail: str) -> None:
        pointer = name.replace("~", "~0").replace("/", "~1")
        self._mistakes.append(Location(f"/{pointer}", detail))
