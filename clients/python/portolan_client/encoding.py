"""Encodes names, values and preferences in requests."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

__all__ = [
    "Freshness",
    "encode_json",
    "field_names",
    "path_of",
    "quoted",
    "unquoted",
    "with_parameters",
]

_ROUTES: Final = frozenset({"query", "import", "export"})


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh a read has to be; by default, it is linearizable where no view answers.

    Attributes:
        consistency: ``strong``: the current state of the systems. ``bounded``: from a materialised
            view, where one exists.
        max_staleness_s: The maximum age of a view's answer (seconds).
        at_least: The position of a write that the answer must contain (`Written.position`).
    """

    consistency: Literal["strong", "bounded"] | None = None
    max_staleness_s: float | None = None
    at_least: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Prefer (RFC 7240); a value that the service does not know is refused, not ignored."""
        values = [
            f"consistency={self.consistency}" if self.consistency else "",
            "" if self.max_staleness_s is None else f"max-staleness={self.max_staleness_s:.6f}",
            f"at-least={quoted(self.at_least)}" if self.at_least else "",
        ]
        preferences = [value for value in values if value]
        return {"Prefer": ", ".join([*preferences, "handling=strict"])} if preferences else {}


def quoted(text: str) -> str:
    """Return a text as a string of a header field (RFC 9651, section 3.3.3)."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def unquoted(string: str) -> str:
    """Return the text of a string that `quoted` returned."""
    return re.sub(r"\\(.)", r"\1", string[1:-1])


def encode_json(value: Any) -> bytes:
    """Return a value as JSON, with decimals, times, bytes and sets in the service's form.

    Raises:
        ValueError: It is not finite, or a time has no zone.
        TypeError: Its type has no JSON form.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_encode_other)
    return text.encode()


def _encode_other(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone")
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case set() | frozenset():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def path_of(*segments: str) -> str:
    """Join names and ids to a path; raises `ValueError` if one cannot be part of an address."""
    return "/".join(_segment(segment) for segment in segments)


def _segment(text: str) -> str:
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be part of an address")
    # A redundant escape distinguishes an id from a route of the same name.
    return f"%{ord(text[0]):x}{text[1:]}" if text in _ROUTES else quote(text, safe="")


def field_names(fields: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return names in the canonical form, the only one that caches store."""
    if fields is None:
        return None
    names = tuple(sorted({fields} if isinstance(fields, str) else set(fields)))
    if not names:
        raise ValueError("fields must name at least one field")
    return names


def with_parameters(path: str, **parameters: str | None) -> str:
    present = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(present, safe=',', quote_via=quote)}" if present else path
