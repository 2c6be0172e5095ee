"""Content negotiation: Content-Type, Accept and Accept-Encoding."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from app.http.problems import INVALID, NOT_ACCEPTABLE, HttpError
from mediator.base.errors import Location
from spark_jobs.runner.results import ResultFormat

__all__ = [
    "EVENT_STREAM",
    "FILES",
    "JSON",
    "JSON_PATCH",
    "MERGE_PATCH",
    "NDJSON",
    "SKETCH",
    "SVG",
    "UPDATE",
    "accepts_by_name",
    "accepts_gzip",
    "check_accept",
    "media_type",
    "prefers_gzip",
]

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
UPDATE: Final = "application/vnd.portolan.update+json"
SKETCH: Final = "application/vnd.portolan.sketch"
SVG: Final = "image/svg+xml"
FILES: Final[dict[str, ResultFormat]] = {
    "text/csv": "csv",
    NDJSON: "json",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.apache.arrow.stream": "arrow",
}
"""The format of a run's result, by its media type."""

_RANGE = re.compile(r"\s*([!#$%&'*+.^_`|~\w-]+/[!#$%&'*+.^_`|~\w-]+)\s*(?:;(.*))?", re.ASCII)
_CODING = re.compile(
    r"\s*([!#$%&'*+.^_`|~\w-]+)\s*(?:;\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?", re.ASCII
)
_MAX_CHARACTERS: Final = 1_024
"""Characters of a field: list members take time to parse, and each cache keeps 256 fields."""

_ZERO = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*", re.ASCII | re.IGNORECASE)
_CHARSET = re.compile(r'\s*charset\s*=\s*"?utf-?8"?\s*', re.ASCII | re.IGNORECASE)


def media_type(content_type: str) -> str | None:
    """Return the media type in lower case.

    None if it is malformed or not in UTF-8, or if the field has more than 1,024 characters.
    """
    return None if len(content_type) > _MAX_CHARACTERS else _media_type(content_type)


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> str | None:
    match = _RANGE.fullmatch(content_type)
    if match is None:
        return None
    parameters = [p for p in (match[2] or "").split(";") if p.strip()]
    charsets = [p for p in parameters if p.strip().lower().startswith("charset")]
    return match[1].lower() if all(map(_CHARSET.fullmatch, charsets)) else None


def check_accept(accept: str, *offered: str) -> None:
    """Refuse a request whose Accept excludes all offered types (RFC 9110, section 12.5.1).

    Raises:
        HttpError: Accept excludes them, or has more than 1,024 characters.
    """
    if len(accept) > _MAX_CHARACTERS:
        locations = [Location("Accept", f"at most {_MAX_CHARACTERS} characters are expected")]
        raise HttpError(INVALID, "There are too many media ranges.", locations=locations)
    if not any(_accepts(accept, type_) for type_ in offered):
        detail = f"The answer would be {' or '.join(offered)}, which Accept excludes."
        raise HttpError(NOT_ACCEPTABLE, detail, extra={"offered": list(offered)})


def accepts_by_name(accept: str, type_: str) -> bool:
    """Whether Accept names a media type without a wildcard, in 1,024 characters at most."""
    return len(accept) <= _MAX_CHARACTERS and _accepts_by_name(accept, type_)


@lru_cache(maxsize=256)
def _accepts_by_name(accept: str, type_: str) -> bool:
    ranges = [match for member in accept.split(",") if (match := _RANGE.fullmatch(member))]
    return any(m[1].lower() == type_ for m in ranges) and _accepts(accept, type_)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an answer may be compressed by gzip (RFC 9110, section 12.5.3)."""
    return _weights(accept_encoding)[0] > 0


def prefers_gzip(accept_encoding: str) -> bool:
    """Whether gzip is accepted, with at least the weight of `identity`."""
    gzip, identity = _weights(accept_encoding)
    return gzip > 0 and gzip >= identity


def _weights(accept_encoding: str) -> tuple[float, float]:
    """Return the weights of gzip and of `identity`, which is 0 unless it is listed.

    Malformed members of the list, and lists that are too long, are ignored.
    """
    return (0.0, 0.0) if len(accept_encoding) > _MAX_CHARACTERS else _weights_of(accept_encoding)


@lru_cache(maxsize=256)
def _weights_of(accept_encoding: str) -> tuple[float, float]:
    members = [
        match for member in accept_encoding.split(",") if (match := _CODING.fullmatch(member))
    ]
    weights = {match[1].lower().removeprefix("x-"): float(match[2] or 1) for match in members}
    return weights.get("gzip", weights.get("*", 0.0)), weights.get("identity", 0.0)


@lru_cache(maxsize=256)
def _accepts(accept: str, offered: str) -> bool:
    """Decide by the most specific range; an empty or malformed field accepts everything."""
    ranges = [match for member in accept.split(",") if (match := _RANGE.fullmatch(member))]
    covering = (offered, offered.partition("/")[0] + "/*", "*/*")
    for range_ in covering:
        weights = [m[2] or "" for m in ranges if m[1].lower() == range_]
        if weights:
            return not all(any(map(_ZERO.fullmatch, w.split(";"))) for w in weights)
    return not ranges
