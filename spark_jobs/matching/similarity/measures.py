"""The registry of measures: how values are read, compared, and combined with a neighbour's.

Measures do not handle missing values; the specification gives their term.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import dist, isfinite
from typing import Any, Final

from spark_jobs.matching.similarity.geometry import (
    chord_similarity,
    join_lines,
    length_similarity,
    orient,
    parse_polyline,
    turn_similarity,
)

__all__ = ["LINES", "MEASURES", "Measure", "MeasureName", "Parameters"]

_MAX_CHARACTERS: Final = 1_024
"""Maximum characters of a text that are compared."""
_MAX_MEMBERS: Final = 256


class MeasureName(StrEnum):
    """The measures of two values."""

    EXACT = "exact"
    TEXT = "text"
    NUMBER = "number"
    SET = "set"
    DATE = "date"
    LENGTH = "length"
    TURN = "turn"
    CHORD = "chord"
    START = "start"
    END = "end"


LINES: Final = frozenset(
    {MeasureName.LENGTH, MeasureName.TURN, MeasureName.CHORD, MeasureName.START, MeasureName.END}
)
"""Measures of polylines."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a measure.

    Attributes:
        scale: The difference at which similarity is 0; None: numbers are compared as a ratio.
        abbreviations: The long form of each abbreviation, such as ``street`` for ``st.``.
    """

    scale: float | None
    abbreviations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of comparison.

    Attributes:
        read: Returns the value to compare; None if it is missing or has another type.
        compare: Returns the similarity of two values, in [0, 1].
        combine: Returns the value of an aggregation; None if the aggregation is impossible.
    """

    read: Callable[[Any, Parameters], Any]
    compare: Callable[[Any, Any, Parameters], float]
    combine: Callable[[Any, Any], Any]


def _read_text(value: Any, parameters: Parameters) -> tuple[str, ...] | None:
    """Return a text as a tuple of one; an aggregation has the texts of its parts."""
    if value is None or isinstance(value, (dict, list)):
        return None
    words = str(value)[:_MAX_CHARACTERS].casefold().split()
    text = " ".join(parameters.abbreviations.get(word, word) for word in words)
    return (text,) if text else None


def _compare_text(one: tuple[str, ...], other: tuple[str, ...], _: Parameters) -> float:
    from rapidfuzz.distance import Levenshtein  # noqa: PLC0415 - specifications do not need it

    return Levenshtein.normalized_similarity(" ".join(one), " ".join(other))


def _compare_exact(one: tuple[str, ...], other: tuple[str, ...], _: Parameters) -> float:
    return float(one == other)


def _combine_texts(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))


def _read_number(value: Any, _: Parameters) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _compare_numbers(one: float, other: float, parameters: Parameters) -> float:
    """Return the ratio of the smaller to the larger, or a linear decrease over the scale."""
    if parameters.scale is not None:
        return max(0.0, 1 - abs(one - other) / parameters.scale)
    if one == other:
        return 1.0
    return 0.0 if one * other <= 0 else min(abs(one), abs(other)) / max(abs(one), abs(other))


def _read_set(value: Any, parameters: Parameters) -> frozenset[str] | None:
    """Return the members of an array, or the words of a text."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    members = value.split() if isinstance(value, str) else value
    if not isinstance(members, list):
        return None
    texts = (_read_text(member, parameters) for member in members[:_MAX_MEMBERS])
    return frozenset(text[0] for text in texts if text) or None


def _compare_sets(one: frozenset[str], other: frozenset[str], _: Parameters) -> float:
    return len(one & other) / len(one | other)


def _read_date(value: Any, _: Parameters) -> tuple[int, int] | None:
    """Return days since 0001-01-01, as the first and last day of a range."""
    try:
        day = datetime.fromisoformat(str(value)).date().toordinal()
    except ValueError:
        return None
    return day, day


def _compare_dates(one: tuple[int, int], other: tuple[int, int], parameters: Parameters) -> float:
    days = (abs(one[0] - other[0]) + abs(one[1] - other[1])) / 2
    return max(0.0, 1 - days / (parameters.scale or 1.0))


def _start(one: Any, other: Any, parameters: Parameters) -> float:
    return _nearness(one.ends[0], orient(other, one).ends[0], parameters)


def _end(one: Any, other: Any, parameters: Parameters) -> float:
    return _nearness(one.ends[1], orient(other, one).ends[1], parameters)


def _nearness(one: Any, other: Any, parameters: Parameters) -> float:
    return max(0.0, 1 - dist(one, other) / (parameters.scale or 1.0))


def _line(compare: Callable[[Any, Any, Parameters], float]) -> Measure:
    return Measure(lambda value, _: parse_polyline(value), compare, join_lines)


MEASURES: Final[Mapping[MeasureName, Measure]] = {
    MeasureName.EXACT: Measure(_read_text, _compare_exact, _combine_texts),
    MeasureName.TEXT: Measure(_read_text, _compare_text, _combine_texts),
    MeasureName.NUMBER: Measure(_read_number, _compare_numbers, lambda one, other: one + other),
    MeasureName.SET: Measure(_read_set, _compare_sets, lambda one, other: one | other),
    MeasureName.DATE: Measure(
        _read_date,
        _compare_dates,
        lambda one, other: (min(one[0], other[0]), max(one[1], other[1])),
    ),
    MeasureName.LENGTH: _line(lambda one, other, _: length_similarity(one, other)),
    MeasureName.TURN: _line(lambda one, other, _: turn_similarity(one, other)),
    MeasureName.CHORD: _line(lambda one, other, _: chord_similarity(one, other)),
    MeasureName.START: _line(_start),
    MeasureName.END: _line(_end),
}
