"""Formats figures for people: durations, rates, ratios, each in a suitable unit."""

from __future__ import annotations

from typing import Final

__all__ = ["NONE", "metric", "name_of", "number", "seconds", "share"]

NONE: Final = "-"
"""Stands for an unknown figure."""

_MINUTE: Final = 60
_HOUR: Final = 3600
_MICROSECONDS: Final = 1e-3
_MIN_INTEGER: Final = 100


def seconds(value: float | None) -> str:
    """Format a duration with three digits, in a suitable unit."""
    if value is None:
        return NONE
    if abs(value) < _MICROSECONDS:
        return "0 s" if value == 0 else f"{value * 1e6:.3g} µs"
    if abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    if abs(value) < 2 * _MINUTE:
        return f"{value:.3g} s"
    return f"{value / _MINUTE:.3g} min" if abs(value) < 2 * _HOUR else f"{value / _HOUR:.3g} h"


def number(value: float | None) -> str:
    """Format a figure: as an integer from a hundred on, else with three digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= _MIN_INTEGER or value == int(value) else f"{value:.3g}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.3g} %"


def name_of(word: str) -> str:
    return word.replace("_", " ")


def metric(value: float | None, name: str) -> str:
    if value is None:
        return NONE
    if name.endswith("latency"):
        return seconds(value)
    return f"{number(value)}/s" if name.endswith("throughput") else share(value)
