"""Interprets header fields of responses; the results of reads and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from sketch.client.connection import ServiceResponse
from sketch.client.problems import problem_of

__all__ = [
    "NOT_FOUND",
    "NOT_MODIFIED",
    "OK",
    "SERVER_ERROR",
    "Read",
    "ReadAnswer",
    "Result",
    "Source",
    "Written",
    "age_s",
    "answer_of",
    "as_of_us",
    "expires_us",
    "is_not_stored",
    "natural",
    "read_of",
    "result_of",
    "source_of",
    "uncertainty_s",
]

OK = 200
NOT_MODIFIED = 304
NOT_FOUND = 404
SERVER_ERROR = 500

_SERVICE = "portolan"
_ROUNDING_S = 1.0
"""Caches give an age in full seconds."""

_MAX_DIGITS = 20
"""Of a number in a header field; microseconds since 1970 have 16."""


class Source(StrEnum):
    """The client's own copy, a cache on the way, or the origin."""

    OWN = "own"
    SHARED = "shared"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The response to a read (200 or 404), from any source.

    Attributes:
        age_s: The age that a cache on the way gave (seconds).
        cache_status: Cache-Status as received (RFC 9211).
    """

    status: int
    etag: str | None
    body: bytes
    source: Source
    age_s: int | None = None
    cache_status: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """An object that was read.

    Attributes:
        value: The object; None if it is absent.
        etag: For `if_match`; None if the object is absent.
        age_s: The age that a cache on the way gave (seconds).
        cache_status: Cache-Status as received (RFC 9211).
    """

    value: dict[str, Any] | None
    etag: str | None
    source: Source
    age_s: int | None = None
    cache_status: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a query.

    Attributes:
        next: For `after`; None if no objects follow.
        total: How many objects there are on all pages, if `count` was given.
        count: Whether the total is ``exact`` or ``estimated``.
        source: Who answered; for objects read one by one, who listed them.
    """

    items: list[dict[str, Any]]
    next: str | None
    source: Source
    total: int | None = None
    count: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        value: The response's body; None if it has none.
        etag: The tag of the object after the write, if it has one.
        position: For `at_least` in reads that must see this write.
        location: The address of a created object.
    """

    value: Any
    etag: str | None
    position: str | None
    location: str | None


def is_not_stored(headers: Mapping[str, str]) -> bool:
    """Whether caches must not store the response."""
    directives = headers.get("cache-control", "").lower().split(",")
    return any(directive.strip() == "no-store" for directive in directives)


def age_s(headers: Mapping[str, str]) -> float:
    """Return how long a response may have been in caches; infinity if its age is unreadable."""
    if "age" not in headers and "via" not in headers:
        return 0.0
    seconds = natural(headers.get("age", "0"))
    if seconds is None:
        return math.inf
    # Proxies also add `Via` and `Age: 0` to responses that they only pass through.
    return 0.0 if seconds == 0 and is_not_stored(headers) else seconds + _ROUNDING_S


def uncertainty_s(headers: Mapping[str, str]) -> float:
    """Return how long before its request the origin may have generated a response.

    A cache that answers a `no-cache` request itself adds an age.
    """
    if source_of(headers) is Source.ORIGIN:
        return 0.0
    return age_s(headers) if "age" in headers else math.inf


def expires_us(headers: Mapping[str, str]) -> int:
    """Return when a response expires by the sketch's clock; 0: it must not be stored."""
    return 0 if is_not_stored(headers) else natural(headers.get("portolan-expires", "")) or 0


def as_of_us(headers: Mapping[str, str]) -> int | None:
    """Return the time by the sketch's clock at which a response was current; None: undated."""
    return natural(headers.get("portolan-as-of", ""))


def source_of(headers: Mapping[str, str]) -> Source:
    aged = headers.get("age", "0").strip() not in {"", "0"}
    return Source.SHARED if aged or _shows_a_hit(headers) else Source.ORIGIN


def _shows_a_hit(headers: Mapping[str, str]) -> bool:
    """Whether a member of Cache-Status (RFC 9211, section 2) shows a cache's hit."""
    for member in headers.get("cache-status", "").split(","):
        name, *parameters = (part.strip().lower() for part in member.split(";"))
        # The service's own hit means that its sketch knew the version: it counts as the origin.
        if "hit" in parameters and name != _SERVICE:
            return True
    return False


def answer_of(response: ServiceResponse) -> ReadAnswer:
    headers = response.headers
    return ReadAnswer(
        response.status,
        headers.get("etag"),
        response.content,
        source_of(headers),
        natural(headers.get("age", "")),
        headers.get("cache-status", ""),
    )


def read_of(answer: ReadAnswer, *, missing_ok: bool) -> Read:
    """Return a read whose value the caller may change; raises `NotFound`."""
    if answer.status == NOT_FOUND and not missing_ok:
        raise problem_of(NOT_FOUND, answer.body)
    exists = answer.status == OK
    return Read(
        orjson.loads(answer.body) if exists else None,
        answer.etag if exists else None,
        answer.source,
        answer.age_s,
        answer.cache_status,
    )


def result_of(answer: ReadAnswer) -> Result:
    """Return a result that the caller may change; raises `NotFound` for the class."""
    if answer.status == NOT_FOUND:
        raise problem_of(NOT_FOUND, answer.body)
    document = orjson.loads(answer.body)
    totals = document.get("total"), document.get("count")
    return Result(document["items"], document["next"], answer.source, *totals)


def natural(text: str) -> int | None:
    """Return the number in a header field; None if it is not a number, or too long."""
    text = text.strip()
    # `int` raises ValueError for thousands of digits, which any cache on the way may send.
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
