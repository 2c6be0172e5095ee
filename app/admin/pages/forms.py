"""Small forms that pages send, as `application/x-www-form-urlencoded`."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from app.http.framework import read_limited
from app.http.paths import parse_query

__all__ = ["read_form"]

_LARGEST: Final = 4_096


async def read_form(
    request: Request, allowed: frozenset[str], largest: int = _LARGEST
) -> dict[str, str]:
    """Read a form.

    Raises:
        HttpError: It is too large, or has a field that is unknown or doubled.
    """
    return parse_query(await read_limited(request, largest), allowed)
