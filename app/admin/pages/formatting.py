"""The filters of the templates, which format values for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from mediator.placement.figures import NONE, metric, name_of, number, seconds, share

__all__ = ["FILTERS", "LONGEST"]

LONGEST: Final = 160
"""Characters of a value that are shown; of longer ones the beginning, and how long they are."""


def moment(value: str | float | None) -> str:
    """Write a time, given in seconds since 1970 or in RFC 3339, in UTC."""
    if value is None:
        return NONE
    time = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else None
    time = time or datetime.fromisoformat(str(value))
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def cut(value: Any) -> str:
    """Write a JSON value, the beginning if it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters)"


FILTERS: Final[dict[str, Callable[..., str]]] = {
    "seconds": seconds,
    "number": number,
    "share": share,
    "words": name_of,
    "metric": metric,
    "moment": moment,
    "cut": cut,
}
