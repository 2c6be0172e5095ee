"""JSON bodies: strict, and with the position of a mistake."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import orjson

from app.http.problems import INVALID, MALFORMED_JSON, HttpError
from mediator.base.errors import Location

__all__ = ["LARGE_BODY", "MOST_VALUES", "parse_json", "require_object"]

LARGE_BODY: Final = 2**14
"""Bytes of a body from which on what it says is decoded in another thread."""

MOST_VALUES: Final = 100_000
"""Values of a body: it is parsed in one go, which takes up to 0.2 microseconds for each."""


def parse_json(body: bytes) -> Any:
    """Parse JSON (RFC 8259) of at most `MOST_VALUES` values and 1,024 levels.

    Of a name that comes twice the last value counts.
    """
    if len(body) > MOST_VALUES:
        _check_values(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        position = {"line": error.lineno, "column": error.colno, "offset": error.pos}
        where = f"line {error.lineno}, column {error.colno}"
        raise HttpError(
            MALFORMED_JSON,
            "The body is empty." if not body else f"The body is not JSON: {where}.",
            locations=[Location("", f"{where}: {error.msg}")],
            extra={"position": position},
        ) from None


def _check_values(body: bytes) -> None:
    """Count openings of arrays and objects, and commas, outside of strings: one for each value."""
    codes = np.frombuffer(body, np.uint8)
    structural = (codes == ord(",")) | (codes == ord("[")) | (codes == ord("{"))
    # An upper bound, and cheap: it counts those within strings as well.
    if np.count_nonzero(structural) <= MOST_VALUES:
        return
    # What is escaped ends no string.
    plain = body.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    quotes = np.frombuffer(plain, np.uint8) == ord('"')
    # Whatever follows an odd number of quotes is within a string.
    within = np.logical_xor.accumulate(quotes)
    if np.count_nonzero(structural & ~within) > MOST_VALUES:
        detail = f"at most {MOST_VALUES} values are allowed"
        raise HttpError(INVALID, "The body has too many values.", locations=[Location("", detail)])


def require_object(body: Any, pointer: str = "") -> dict[str, Any]:
    if isinstance(body, dict):
        return body
    locations = [Location(pointer, "an object is expected")]
    raise HttpError(INVALID, "A JSON object is expected.", locations=locations)
