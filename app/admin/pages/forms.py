"""Small forms that pages send, as `application/x-www-form-urlencoded`."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from app.http.paths import parse_query
from app.http.problems import BODY_TOO_LARGE, HttpError

__all__ = ["read_form"]

_LARGEST: Final = 4_096


async def read_form(
    request: Request, allowed: frozenset[str], largest: int = _LARGEST
) -> dict[str, str]:
    """Read a form.

    Args:
        request: The request.
        allowed: The fields that it may have.
        largest: Its size at most, in bytes.

    Raises:
        HttpError: It is too large, or has a field that is unknown or doubled.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > largest:
            raise HttpError(BODY_TOO_LARGE, f"The form is larger than {largest} bytes.")
    return parse_query(bytes(body), allowed)
