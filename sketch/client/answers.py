"""What header fields of answers mean, and what reads and writes return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from sketch.client.problems import problem_of

__all__ = [
    "NOT_FOUND",
    "NOT_MODIFIED",
    "OK",
    "SERVER_ERROR",
    "Answer",
    "Read",
    "Result",
    "Source",
    "Written",
    "age_s",
    "answer_of",
    "as_of_us",
    "expires_us",
    "is_not_stored",
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


class Source(StrEnum):
    """Who answered a read."""

    OWN = "own"
    SHARED = "shared"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a read, from any source.

    Attributes:
        status: 200 or 404.
        etag: The tag, if there is one.
        body: As received.
        source: Who answered.
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
        value: The object; None if it is not there.
        etag: The tag of what was read, for `if_match`; None if it is not there.
        source: Who answered.
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
        items: The objects, in their order.
        next: For `after`, if more follow.
        source: Who answered; of objects that were read one by one, who listed them.
    """

    items: list[dict[str, Any]]
    next: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        value: As the service answers it; None where it sends no body.
        etag: The tag of the object as it is now, if it has one.
        position: For `at_least` of readers who are to see this write.
        location: Where a created object is.
    """

    value: Any
    etag: str | None
    position: str | None
    location: str | None


def is_not_stored(headers: Mapping[str, str]) -> bool:
    """Whether no cache may keep the answer."""
    directives = headers.get("cache-control", "").lower().split(",")
    return any(directive.strip() == "no-store" for directive in directives)


def age_s(headers: Mapping[str, str]) -> float:
    """Return how long an answer may have lain in caches (seconds).

    Proxies put `Via` and `Age: 0` on answers that they pass through, too. So an answer that no
    cache may keep, and that claims no age, has not been in any.
    """
    if "age" not in headers and "via" not in headers:
        return 0.0
    seconds = _natural(headers.get("age", "0"))
    if seconds is None:
        return math.inf
    return 0.0 if seconds == 0 and is_not_stored(headers) else seconds + _ROUNDING_S


def uncertainty_s(headers: Mapping[str, str]) -> float:
    """Return how long before its request an answer meant for the origin may have been given.

    A cache that answers a request with `no-cache` itself shows it by an age.
    """
    if source_of(headers) is Source.ORIGIN:
        return 0.0
    return age_s(headers) if "age" in headers else math.inf


def expires_us(headers: Mapping[str, str]) -> int:
    """Return when an answer expires by the sketch's clock; 0: it must not be kept."""
    return 0 if is_not_stored(headers) else _natural(headers.get("portolan-expires", "")) or 0


def as_of_us(headers: Mapping[str, str]) -> int | None:
    """Return the time by the sketch's clock at which an answer was true; None: it is undated."""
    return _natural(headers.get("portolan-as-of", ""))


def source_of(headers: Mapping[str, str]) -> Source:
    """Return who answered, as far as the answer shows it.

    A hit of the service itself means that its sketch knew the version: that is the origin's word.
    """
    aged = headers.get("age", "0").strip() not in {"", "0"}
    return Source.SHARED if aged or _shows_a_hit(headers) else Source.ORIGIN


def _shows_a_hit(headers: Mapping[str, str]) -> bool:
    """Whether a member of Cache-Status (RFC 9211, section 2) shows a cache's hit."""
    for member in headers.get("cache-status", "").split(","):
        name, *parameters = (partition.strip().lower() for partition in member.split(";"))
        if "hit" in parameters and name != _SERVICE:
            return True
    return False


def answer_of(status: int, etag: str | None, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Return an answer with what its header fields say of its way."""
    return Answer(
        status,
        etag,
        body,
        source_of(headers),
        _natural(headers.get("age", "")),
        headers.get("cache-status", ""),
    )


def read_of(answer: Answer, *, missing_ok: bool) -> Read:
    """Return a read of its own for each reader, whose value may be changed; raises `NotFound`."""
    if answer.status == NOT_FOUND and not missing_ok:
        raise problem_of(NOT_FOUND, answer.body)
    found = answer.status == OK
    return Read(
        orjson.loads(answer.body) if found else None,
        answer.etag if found else None,
        answer.source,
        answer.age_s,
        answer.cache_status,
    )


def result_of(answer: Answer) -> Result:
    """Return a result of its own for each reader; raises `NotFound`: the class is not there."""
    if answer.status == NOT_FOUND:
        raise problem_of(NOT_FOUND, answer.body)
    document = orjson.loads(answer.body)
    return Result(document["items"], document["next"], answer.source)


def _natural(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None
