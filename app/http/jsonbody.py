"""JSON bodies: strict, and with the position of a mistake."""

from __future__ import annotations

from typing import Any

import orjson

from app.http.problems import INVALID, MALFORMED_JSON, HttpError
from mediator.errors import Place

__all__ = ["parse_json", "require_object"]


def parse_json(body: bytes) -> Any:
    """Parse JSON (RFC 8259); of a name that comes twice the last value counts.

    Raises:
        HttpError: It is not JSON, is nested deeper than 1,024 levels, or is empty.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        position = {"line": error.lineno, "column": error.colno, "offset": error.pos}
        where = f"line {error.lineno}, column {error.colno}"
        raise HttpError(
            MALFORMED_JSON,
            "The body is empty." if not body else f"The body is not JSON: {where}.",
            places=[Place("", f"{where}: {error.msg}")],
            extra={"position": position},
        ) from None


def require_object(body: Any, pointer: str = "") -> dict[str, Any]:
    """Return the body if it is a JSON object.

    Raises:
        HttpError: It is something else.
    """
    if isinstance(body, dict):
        return body
    raise HttpError(
        INVALID, "A JSON object is expected.", places=[Place(pointer, "an object is expected")]
    )
