"""Figures as people read them: the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

__all__ = ["FILTERS", "LONGEST", "metric", "name_of", "seconds"]

LONGEST: Final = 160
"""Characters of a value that are shown; of longer ones the beginning, and how long they are."""

_NONE: Final = "-"
_MINUTE: Final = 60
_HOUR: Final = 3600
_MICROSECONDS: Final = 1e-3
_WHOLE: Final = 100


def seconds(value: float | None) -> str:
    """Write a duration with three digits, in the unit that fits."""
    if value is None:
        return _NONE
    if abs(value) < _MICROSECONDS:
        return "0 s" if value == 0 else f"{value * 1e6:.3g} µs"
    if abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    if abs(value) < 2 * _MINUTE:
        return f"{value:.3g} s"
    return f"{value / _MINUTE:.3g} min" if abs(value) < 2 * _HOUR else f"{value / _HOUR:.3g} h"


def number(value: float | None) -> str:
    """Write a figure: whole from a hundred on, else with three digits."""
    if value is None:
        return _NONE
    return f"{value:,.0f}" if abs(value) >= _WHOLE or value == int(value) else f"{value:.3g}"


def share(value: float | None) -> str:
    """Write a ratio in per cent."""
    return _NONE if value is None else f"{value * 100:.3g} %"


def name_of(word: str) -> str:
    """Write the name of a metric, or of a capability, in words."""
    return word.replace("_", " ")


def metric(value: float | None, name: str) -> str:
    """Write the value of a metric in its unit."""
    if value is None:
        return _NONE
    if name.endswith("latency"):
        return seconds(value)
    return f"{number(value)}/s" if name.endswith("throughput") else share(value)


def moment(value: str | float | None) -> str:
    """Write a time, given in seconds since 1970 or in RFC 3339, in UTC."""
    if value is None:
        return _NONE
    of = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else None
    of = of or datetime.fromisoformat(str(value))
    return of.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


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
