"""Objects for the engine, read from records by a specification.

Records give their values, the *keys* by which they become candidates of each other, and the
*joints* that they share with their neighbours: end points of lines and references.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from spark_jobs.matching.similarity.geometry import Polyline, cells, parse_polyline
from spark_jobs.matching.similarity.measures import LINES, MEASURES, MeasureName, Parameters
from spark_jobs.matching.similarity.spec import (
    Grid,
    Key,
    KeyTake,
    MeasureSpec,
    Side,
    SimilaritySpec,
)
from spark_jobs.runner.port import InputUnfit
from spark_jobs.texts import soundex

__all__ = ["MatchObject", "Reader", "Similarity"]

_MAX_CELLS: Final = 10_000
_MAX_REFERENCES: Final = 256
_DECIMALS: Final = 6
"""Decimals of coordinates of end points; smaller distances count as 0."""


@dataclass(frozen=True, slots=True)
class MatchObject:
    """One object of a source.

    Attributes:
        values: One for each reading of the specification; None: missing, or of another type.
        type: Its type; None: not requested, or unknown.
        keys: The keys by which it becomes a candidate.
        joints: Objects of its source with a common joint are its neighbours.
        line: Its line, if candidates are found by a grid.
        link: The name of a decided link, which joins all objects with this name.
        cannot: Ids of the other source that it is never linked with.
    """

    id: str
    values: tuple[Any, ...]
    type: str | None = None
    keys: frozenset[str] = frozenset()
    joints: frozenset[str] = frozenset()
    line: Polyline | None = None
    link: str | None = None
    cannot: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Reading:
    """How one value of an object is read; measures of one line share a reading."""

    kind: MeasureName
    left: str
    right: str
    parameters: Parameters

    @classmethod
    def of(cls, measure: MeasureSpec) -> _Reading:
        kind = MeasureName.LENGTH if measure.measure in LINES else measure.measure
        words = {} if measure.measure in LINES else measure.parameters.abbreviations
        return cls(kind, measure.field, measure.name("right"), Parameters(None, words))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One measure, with the index of the reading that it compares."""

    spec: MeasureSpec
    reading: int
    parameters: Parameters


class Similarity:
    """The weighted similarity of a specification, without the relational term."""

    def __init__(self, spec: SimilaritySpec) -> None:
        self.readings: list[_Reading] = []
        self._comparisons = [self._comparison(measure, spec) for measure in spec.measures]
        self.labels = tuple(measure.label for measure in spec.measures)

    def _comparison(self, measure: MeasureSpec, spec: SimilaritySpec) -> _Comparison:
        reading = _Reading.of(measure)
        if reading not in self.readings:
            self.readings.append(reading)
        parameters = measure.parameters
        if measure.measure in {MeasureName.START, MeasureName.END} and measure.scale is None:
            parameters = Parameters(spec.buffer, {})
        return _Comparison(measure, self.readings.index(reading), parameters)

    def terms(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[float, ...] | None:
        """Measure the values of two objects; None: a measure is below its minimum."""
        terms: list[float] = []
        for comparison in self._comparisons:
            term = _term(comparison, left[comparison.reading], right[comparison.reading])
            if term < comparison.spec.minimum:
                return None
            terms.append(term)
        return tuple(terms)

    def all_terms(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[float, ...]:
        """Measure the values of two objects, regardless of minimums."""
        return tuple(
            _term(comparison, left[comparison.reading], right[comparison.reading])
            for comparison in self._comparisons
        )

    def weighted(self, terms: Sequence[float]) -> float:
        pairs = zip(self._comparisons, terms, strict=True)
        return sum(comparison.spec.weight * term for comparison, term in pairs)

    def combine(self, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the values of an aggregation; None: the lines of the two do not meet."""
        combined: list[Any] = []
        for reading, x, y in zip(self.readings, one, other, strict=True):
            if x is None or y is None:
                combined.append(y if x is None else x)
                continue
            combined.append(MEASURES[reading.kind].combine(x, y))
            if combined[-1] is None:
                return None
        return tuple(combined)


def _term(comparison: _Comparison, left: Any, right: Any) -> float:
    if left is None or right is None:
        return comparison.spec.missing
    return MEASURES[comparison.spec.measure].compare(left, right, comparison.parameters)


class Reader:
    """Reads the objects of one source from records."""

    def __init__(self, spec: SimilaritySpec, side: Side) -> None:
        self._spec = spec
        self._side = side
        self._readings = tuple(Similarity(spec).readings)

    def read(
        self, record: Mapping[str, Any], link: str | None = None, cannot: Sequence[str] = ()
    ) -> MatchObject:
        """Read an object.

        Raises:
            InputUnfit: Its line touches so many cells of the grid that the buffer must be wrong.
        """
        blocking = self._spec.blocking
        line = None
        if isinstance(blocking, Grid):
            line = parse_polyline(self._value(record, blocking.grid))
        values = tuple(self._read(record, reading) for reading in self._readings)
        return MatchObject(
            id=str(record["id"]),
            values=values,
            type=self._type(record),
            keys=frozenset(self._keys(record, line)),
            joints=frozenset(self._joints(record, line, values)),
            line=line,
            link=link,
            cannot=frozenset(cannot),
        )

    def _value(self, record: Mapping[str, Any], field: Any) -> Any:
        return record.get(field.name(self._side))

    def _read(self, record: Mapping[str, Any], reading: _Reading) -> Any:
        value = record.get(reading.left if self._side == "left" else reading.right)
        return None if value is None else MEASURES[reading.kind].read(value, reading.parameters)

    def _type(self, record: Mapping[str, Any]) -> str | None:
        value = None if self._spec.types is None else self._value(record, self._spec.types)
        return None if value is None else str(value)

    def _keys(self, record: Mapping[str, Any], line: Polyline | None) -> Iterator[str]:
        blocking = self._spec.blocking
        if not isinstance(blocking, Grid):
            for number, key in enumerate(blocking.keys):
                if value := _key_value(key, self._value(record, key)):
                    yield f"{number}:{value}"
        elif line is not None:
            # The buffer is added to the left, so the right does not need it.
            buffer = blocking.buffer if self._side == "left" else 0.0
            near_cells = cells(line, 2 * blocking.buffer, buffer, _MAX_CELLS)
            if near_cells is None:
                raise InputUnfit(
                    f"{self._side} {record['id']} touches more than {_MAX_CELLS:,} cells: "
                    "a wider buffer is needed, or its coordinates have another unit."
                )
            yield from (f"{column},{row}" for column, row in near_cells)

    def _joints(
        self, record: Mapping[str, Any], line: Polyline | None, values: Sequence[Any]
    ) -> Iterator[str]:
        lines = (value for value in values if isinstance(value, Polyline))
        if (first := line or next(lines, None)) is not None:
            yield from (f"{round(x, _DECIMALS)},{round(y, _DECIMALS)}" for x, y in first.ends)
        if self._spec.references:
            references = (self._value(record, field) for field in self._spec.references)
            yield f"={record['id']}"
            yield from (
                f"={value}" for value in chain.from_iterable(map(_referenced_ids, references))
            )


def _referenced_ids(value: Any) -> Sequence[Any]:
    """Return the ids that a field refers to: one, or those of an array, possibly as text."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    ids = value if isinstance(value, list) else [value]
    return [id_ for id_ in ids[:_MAX_REFERENCES] if isinstance(id_, (str, int)) and id_ != ""]


def _key_value(key: Key, value: Any) -> str | None:
    if value is None or isinstance(value, (dict, list)):
        return None
    text = " ".join(str(value).casefold().split())
    match key.take:
        case KeyTake.EXACT:
            return text
        case KeyTake.PREFIX:
            return text[: key.length]
        case KeyTake.SOUNDEX:
            return soundex(_plain(text.partition(" ")[0]))


def _plain(word: str) -> str:
    """Return letters without accents."""
    return unicodedata.normalize("NFKD", word).casefold()
