"""Strict percent-decoding of raw paths and queries."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean

__all__ = ["decode_segment", "decode_text", "parse_integer", "parse_pairs", "parse_query"]

_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_MAX_QUERY_BYTES = 65_536
_MAX_PARAMETERS = 300
_MAX_INTEGER = 2**53
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)


def decode_text(raw: bytes, pointer: str) -> str:
    """Percent-decode once, as UTF-8; refuse malformed escapes and byte sequences."""
    if b"%" in raw:
        if _MALFORMED_ESCAPE.search(raw):
            raise _refuse(pointer, "a % is not followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _refuse(pointer, "the text is not UTF-8") from None


def decode_segment(raw: bytes, pointer: str) -> str:
    """Percent-decode one segment of a path; refuse an escaped slash, which ids cannot contain."""
    text = decode_text(raw, pointer)
    if "/" in text:
        raise _refuse(pointer, "it cannot contain a slash")
    return text


def parse_query(
    raw: bytes, allowed: frozenset[str], max_bytes: int = _MAX_QUERY_BYTES
) -> dict[str, str]:
    """Parse the parameters of a query; refuse unknown and repeated ones."""
    parameters: dict[str, str] = {}
    for name, value in parse_pairs(raw, max_bytes):
        if name not in allowed or name in parameters:
            raise _refuse_parameter(name, allowed)
        parameters[name] = value
    return parameters


def parse_pairs(raw: bytes, max_bytes: int = _MAX_QUERY_BYTES) -> list[tuple[str, str]]:
    """Parse ``name=value`` pairs in order; ``+`` stands for a space.

    Args:
        raw: The query of a URL, or a form, which may be longer.
        max_bytes: Limit of `raw`, in bytes.
    """
    if not raw:
        return []
    if len(raw) > max_bytes:
        raise HttpError(INVALID, f"A query may have at most {max_bytes} bytes.")
    if raw.count(b"&") >= _MAX_PARAMETERS:
        raise HttpError(INVALID, f"A query may have at most {_MAX_PARAMETERS} parameters.")
    # Before anything is decoded: an escaped plus (%2B) stays a plus.
    pairs = [pair.partition(b"=") for pair in raw.replace(b"+", b"%20").split(b"&") if pair]
    return [
        ((name := decode_text(raw_name, "query")), decode_text(value, name))
        for raw_name, _, value in pairs
    ]


def parse_integer(text: str, name: str, *, minimum: int, maximum: int = _MAX_INTEGER) -> int:
    if _DIGITS.fullmatch(text) and minimum <= (number := int(text)) <= maximum:
        return number
    locations = [Location(name, f"a whole number from {minimum} to {maximum} is expected")]
    raise HttpError(INVALID, f"The value of {name} is not allowed.", locations=locations)


def _refuse_parameter(name: str, allowed: frozenset[str]) -> HttpError:
    if name in allowed:
        return _refuse(name, "the parameter is given more than once")
    known = ", ".join(sorted(allowed)) or "none"
    hint = did_you_mean(name, allowed)
    return _refuse(name, f"there is no such parameter here; known: {known}{hint}")


def _refuse(pointer: str, detail: str) -> HttpError:
    return HttpError(INVALID, "The address is malformed.", locations=[Location(pointer, detail)])
