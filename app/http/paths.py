"""Paths and queries in their raw form: decoded once, strictly, or refused."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean

__all__ = ["decode_segment", "decode_text", "parse_integer", "parse_pairs", "parse_query"]

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_LONGEST_QUERY = 65_536
_MOST_PARAMETERS = 300
_LARGEST = 2**53
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)


def decode_text(raw: bytes, pointer: str) -> str:
    """Percent-decode once, as UTF-8; refuse broken escapes and byte sequences."""
    if b"%" in raw:
        if _BROKEN.search(raw):
            raise _refuse(pointer, "a % is not followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _refuse(pointer, "the text is not UTF-8") from None


def decode_segment(raw: bytes, pointer: str) -> str:
    """Percent-decode one segment of a path; an escaped slash is not a slash, and no id has one."""
    text = decode_text(raw, pointer)
    if "/" in text:
        raise _refuse(pointer, "a slash cannot be part of it")
    return text


def parse_query(
    raw: bytes, allowed: frozenset[str], longest: int = _LONGEST_QUERY
) -> dict[str, str]:
    """Read the parameters that a route has; refuse others, and those that are given twice."""
    parameters: dict[str, str] = {}
    for name, value in parse_pairs(raw, longest):
        if name not in allowed or name in parameters:
            raise _refuse_parameter(name, allowed)
        parameters[name] = value
    return parameters


def parse_pairs(raw: bytes, longest: int = _LONGEST_QUERY) -> list[tuple[str, str]]:
    """Read ``name=value`` pairs in their order, in which ``+`` stands for a space.

    A form may be longer than a query: `longest` is in bytes.
    """
    if not raw:
        return []
    if len(raw) > longest:
        raise HttpError(INVALID, f"A query may have at most {longest} bytes.")
    if raw.count(b"&") >= _MOST_PARAMETERS:
        raise HttpError(INVALID, f"A query may have at most {_MOST_PARAMETERS} parameters.")
    # Before anything is decoded: an escaped plus (%2B) stays a plus.
    pairs = [pair.partition(b"=") for pair in raw.replace(b"+", b"%20").split(b"&") if pair]
    return [
        ((name := decode_text(raw_name, "query")), decode_text(value, name))
        for raw_name, _, value in pairs
    ]


def parse_integer(text: str, name: str, *, least: int, most: int = _LARGEST) -> int:
    if _DIGITS.fullmatch(text) and least <= (number := int(text)) <= most:
        return number
    locations = [Location(name, f"a whole number from {least} to {most} is expected")]
    raise HttpError(INVALID, f"The value of {name} is not allowed.", locations=locations)


def _refuse_parameter(name: str, allowed: frozenset[str]) -> HttpError:
    if name in allowed:
        return _refuse(name, "the parameter is given more than once")
    known = ", ".join(sorted(allowed)) or "none"
    meant = did_you_mean(name, allowed)
    return _refuse(name, f"there is no such parameter here; known: {known}{meant}")


def _refuse(pointer: str, detail: str) -> HttpError:
    return HttpError(INVALID, "The address is malformed.", locations=[Location(pointer, detail)])
